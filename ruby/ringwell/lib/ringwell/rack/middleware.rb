# frozen_string_literal: true

module Ringwell
  module Rack
    # The published API in front of an application:
    #
    #     use Ringwell::Rack::Middleware, client
    #
    # Answers requests for the API's paths, and passes all other requests on unchanged.
    class Middleware
      OWN = %r{\A/api/[^/]+/(?:bulk\.json|ring_pools/[^/]*/allocate_number\.[^/]+)\z}

      # @param app [#call] the next application
      # @param backend [#bulk] see {App}
      # @param options [Hash] see {App#initialize}
      def initialize(app, backend, **options)
        @app = app
        @api = App.new(backend, **options)
      end

      def call(env)
        own = OWN.match?("#{env["SCRIPT_NAME"]}#{env["PATH_INFO"]}")
        own ? @api.call(env) : @app.call(env)
      end
    end
  end
end
