# frozen_string_literal: true

module Ringwell
  module Rails
    # An environment's section of config/ringwell.yml.
    module Settings
      FILE = "config/ringwell.yml"

      # Reads the application's settings. Development and test use a {Fake}, unless the file has a
      # section for that environment.
      #
      # @return [Config, nil] nil without a file
      # @raise [ConfigError] the section is missing or invalid
      def self.read(app)
        return unless app.root.join(FILE).exist?

        section = app.config_for(:ringwell)
        return Config.read(section) if section && !section.empty?

        %w[development test].include?(::Rails.env) or
          raise ConfigError, "#{FILE} has no section for #{::Rails.env}"
        Config.new(fake: true)
      end

      # Creates the application's client, if there are settings.
      #
      # @param settings [Config, nil]
      def self.apply(settings)
        Rails.settings = settings
        Ringwell.client = settings.client if settings
      end

      # Serves the published API in front of all other middleware, if the application enables it.
      def self.serve_api(app)
        options = app.config.ringwell.serve_api or return
        app.middleware.insert_before(0, Rack::Middleware, DefaultClient.new,
                                     **(options == true ? {} : options))
      end
    end

    # Passes batches to the current {Ringwell.client}. The backend of a {Rack::App} that may be
    # created before the client, or outlive it.
    class DefaultClient
      # See {Allocator#bulk}.
      def bulk(...) = Ringwell.client.bulk(...)

      def deadline = Ringwell.client.deadline

      def ready? = Ringwell.client.ready?
    end
  end
end
