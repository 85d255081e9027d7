# frozen_string_literal: true

require "rails/railtie"
require_relative "settings"

module Ringwell
  module Rails
    # Creates {Ringwell.client} from config/ringwell.yml, adds the helpers to all views, and logs
    # the client's events.
    #
    # Nothing needs to be called after a fork, because the client detects the new process.
    #
    # `config.ringwell.serve_api = true` in config/application.rb serves the published API beside
    # the pages. It comes before all other middleware, because some middleware reads form bodies,
    # and `curl -d` sends forms. A hash sets options of {Rack::App}.
    class Railtie < ::Rails::Railtie
      config.ringwell = ActiveSupport::OrderedOptions.new

      initializer "ringwell.client" do |app|
        Settings.apply(Settings.read(app))
      end

      initializer "ringwell.api" do |app|
        Settings.serve_api(app)
      end

      initializer "ringwell.view_helper" do
        ActiveSupport.on_load(:action_view) { include ViewHelper, SnippetHelper }
      end

      # Runs late, because it loads ActiveJob, which reads its settings when it is loaded.
      config.after_initialize do
        defined?(::ActiveJob::Railtie) && require_relative("outcome_job")
      end

      initializer "ringwell.log_subscriber" do
        require_relative "log_subscriber"
        LogSubscriber.attach_to(:ringwell)
      end
    end
  end
end
