# frozen_string_literal: true

# A Rails application in one file: a page with a number of its own for each visitor, and beside it
# the published API. `rackup examples/rails/config.ru` starts it; config/ringwell.yml says where
# the server is.
require "action_controller/railtie"
require "ringwell/rails"
require "ringwell/rack"

class Shop < Rails::Application
  config.root = __dir__
  config.eager_load = false
  config.logger = Logger.new(nil)
  config.hosts.clear
  config.secret_key_base = "only an example"

  # Whoever asks this application for numbers gets them as from a server.
  initializer "shop.api", after: "ringwell.client" do |app|
    app.middleware.use Ringwell::Rack::Middleware, Ringwell.client
  end

  routes.append { get "/" => "pages#show" }
end

class PagesController < ActionController::Base
  PAGE = <<~ERB
    <p>Call <%= ringwell_number "42", m1: params[:campaign] %>!</p>
    <footer><%= ringwell_number "42", m1: params[:campaign] %></footer>
  ERB

  def show
    render inline: PAGE
  end
end
