# frozen_string_literal: true

require_relative "config"
require_relative "fake"
require_relative "rack"
require_relative "webhooks"

module Ringwell
  # The gem in a Rails application.
  module Rails
    class << self
      # What config/ringwell.yml says; nil without a file.
      #
      # @return [Config, nil]
      attr_accessor :settings

      # The server's calls, for outcomes.
      #
      # @return [Calls]
      # @raise [ConfigError] config/ringwell.yml does not say where
      def calls
        settings&.calls or raise ConfigError, "config/ringwell.yml has no management: { url, token }"
      end
    end
  end
end

require_relative "rails/view_helper"
require_relative "rails/snippet_helper"
require_relative "rails/railtie"
