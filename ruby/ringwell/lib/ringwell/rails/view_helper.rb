# frozen_string_literal: true

require_relative "page_parameters"

module Ringwell
  # The gem in a Rails application.
  module Rails
    # For views: `<%= ringwell_number "42", params: { m1: params[:campaign] } %>`.
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
      # @param params [Hash, nil] the visitor's context, of whatever the visitor sent: what cannot
      #   be stored is left out or cut, see {PageParameters}
      # @param visitor [String, nil] the same visitor gets the same number, e.g. a cookie's value
      # @param key [String, nil] the ring pool's key, if config/ringwell.yml does not have it
      # @param overflow [String, nil] its overflow number, likewise
      # @return [Allocation] prints as 888-555-0142
      # @raise [Error] see {Allocator#allocate}; with an overflow number in config/ringwell.yml only
      #   for mistakes of the application
      def ringwell_number(pool, params: nil, visitor: nil, key: nil, overflow: nil)
        params = PageParameters.clean(params)
        visitor = PageParameters.visitor(visitor)
        numbers = (request.env[NUMBERS] ||= {})
        numbers[[pool.to_s, params, visitor]] ||=
          Ringwell.client.allocate(pool, key:, params:, visitor:, overflow:)
      end
    end
  end
end
