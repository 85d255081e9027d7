# frozen_string_literal: true

module Ringwell
  # The gem in a Rails application.
  module Rails
    # For views: `<%= ringwell_number "42", m1: "autos" %>`.
    module ViewHelper
      # Where the numbers of a request are kept. The request is the only thing that is the same for
      # all fragments of a page and different for all others, whether the application runs a
      # thread or a fiber for each.
      NUMBERS = "ringwell.numbers"

      # The number to show on this page; the same one wherever the page asks for it with the same
      # parameters. Asks {Ringwell.client} the first time, which takes at most its deadline: leave
      # no database connection waiting meanwhile.
      #
      # @param pool [String, Integer] the ring pool's id
      # @param parameters [Hash] see {Allocator#allocate}
      # @return [Allocation] prints as 888-555-0142
      # @raise [Error] see {Allocator#allocate}; with an overflow number in config/ringwell.yml only
      #   for mistakes
      def ringwell_number(pool, **parameters)
        numbers = request.env[NUMBERS] ||= {}
        numbers[[pool.to_s, parameters]] ||= Ringwell.client.allocate(pool, **parameters)
      end
    end
  end
end
