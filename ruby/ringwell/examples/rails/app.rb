# frozen_string_literal: true

# A Rails application in one file: a page with its own number for each visitor, and the published
# API beside it. `rackup examples/rails/config.ru` starts it; config/ringwell.yml has the server's
# address.
require "action_controller/railtie"
begin
  require "active_job/railtie"
rescue LoadError
  # Only call outcomes need ActiveJob.
end
require "ringwell/rails"

class Shop < Rails::Application
  config.root = __dir__
  config.eager_load = false
  config.logger = Logger.new(nil)
  config.hosts.clear
  config.secret_key_base = "only an example"

  # Serves the published API beside the pages, like a server.
  config.ringwell.serve_api = true

  routes.append do
    get "/" => "pages#show"
    get "/all" => "pages#all"
  end
end

class PagesController < ActionController::Base
  PAGE = <<~ERB
    <p>Call <%= ringwell_number "42", params: { m1: params[:campaign] } %>!</p>
    <footer><%= ringwell_number "42", params: { m1: params[:campaign] } %></footer>
  ERB

  def show
    render inline: PAGE
  end

  # A page that stores all parameters of its URL with the number.
  def all
    render inline: "<%= ringwell_number \"42\", params: request.query_parameters %>"
  end
end
