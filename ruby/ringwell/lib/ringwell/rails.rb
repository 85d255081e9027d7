# frozen_string_literal: true

require_relative "config"
require_relative "fake"
require_relative "rack"
require_relative "webhooks"

module Ringwell
  # The gem in a Rails application.
  module Rails
    class << self
      # The contents of config/ringwell.yml; nil without a file.
      #
      # @return [Config, nil]
      attr_accessor :settings

      # The server's calls, to which outcomes are sent.
      #
      # @return [Calls]
      # @raise [ConfigError] config/ringwell.yml has no management address
      def calls
        settings&.calls or raise ConfigError, "config/ringwell.yml has no management: { url, token }"
      end
    end
  end
end

require_relative "rails/view_helper"
require_relative "rails/snippet_helper"
require_relative "rails/railtie"
