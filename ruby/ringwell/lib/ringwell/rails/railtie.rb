# frozen_string_literal: true

require "rails/railtie"

module Ringwell
  module Rails
    # Makes {Ringwell.client} from config/ringwell.yml, and gives its helper to all views.
    #
    # The client tells ActiveSupport::Notifications what it does ("bulk.ringwell" and others). It
    # needs nothing after a fork: it sees by itself that it is in another process.
    class Railtie < ::Rails::Railtie
      initializer "ringwell.client" do |app|
        if app.root.join("config", "ringwell.yml").exist?
          Ringwell.client = Config.read(app.config_for(:ringwell)).client
        end
      end

      initializer "ringwell.view_helper" do
        ActiveSupport.on_load(:action_view) { include ViewHelper }
      end
    end
  end
end
