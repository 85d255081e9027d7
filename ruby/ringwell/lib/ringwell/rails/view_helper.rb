# frozen_string_literal: true

require_relative "page_parameters"

module Ringwell
  # The gem in a Rails application.
  module Rails
    # A helper for views: `<%= ringwell_number "42", params: { m1: params[:campaign] } %>`.
    module ViewHelper
      # The key under which a request's numbers are stored. All fragments of a page share one
      # request, and no two pages share a request, whether the application uses a thread or a fiber
      # for each.
      NUMBERS = "ringwell.numbers"

      # The number to show on this page. The same parameters give the same number anywhere on the
      # page. The first call requests it from {Ringwell.client}, which may take until the client's
      # deadline: do not hold a database connection during that time.
      #
      # @param pool [String, Integer] the ring pool's id
      # @param params [Hash, nil] the visitor's context, from any parameters the visitor sent:
      #   values that cannot be stored are omitted or cut, see {PageParameters}
      # @param visitor [String, nil] the same visitor gets the same number, e.g. a cookie's value
      # @param key [String, nil] the ring pool's key; may be omitted if config/ringwell.yml has it
      # @param overflow [String, nil] its overflow number; likewise
      # @return [Allocation] prints as 888-555-0142
      # @raise [Error] see {Allocator#allocate}; if config/ringwell.yml has an overflow number, only
      #   for the application's mistakes
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
