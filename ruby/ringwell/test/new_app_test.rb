# frozen_string_literal: true

require "net/http"
require "digest"
require "open3"

# A Rails application from `rails new` and the generator: to a number on its page, and to the visitor
# who was shown it.
class NewAppTest < RingwellTest
  GEM = File.expand_path("..", __dir__)
  TOKEN = "a-token-of-the-tests"
  # No database, no assets, nothing that must be downloaded.
  LEFT_OUT = %w[bundle git active-record active-storage action-mailer action-mailbox action-text action-cable
    sprockets asset-pipeline javascript turbolinks bootsnap listen spring webpack-install hotwire
    jbuilder system-test puma docker ci rubocop brakeman thruster kamal solid devcontainer keeps]
    .map { |name| "--skip-#{name}" }.freeze
  GEMFILE = <<~RUBY
    gem "railties"
    gem "actionpack"
    gem "activejob"
    gem "ringwell", path: #{GEM.inspect}
  RUBY
  PAGE = '<%= ringwell_snippet_tag %><p>Call <%= ringwell_number "42", params: { m1: params[:campaign] } %></p>'
  PAGE_TEST = <<~RUBY
    require "test_helper"

    class PagesControllerTest < ActionDispatch::IntegrationTest
      2.times do |i|
        test "a visitor of a campaign has a number \#{i}" do
          get "/?campaign=autos"
          assert_response :success
          assert_equal "2005550101", assert_ringwell_number("42", params: { m1: "autos" })
          assert_includes response.body, "200-555-0101"
        end
      end
    end
  RUBY
  VISIT = 'puts Rack::MockRequest.new(Rails.application).get("/?campaign=autos", "HTTP_HOST" => "localhost").body'

  it "from rails new to a number on a page and an attributed call" do
    skip "Rails is not installed" if Gem::Specification.find_all_by_name("railties").empty?
    running = server(Server.pool(42, key: KEY, numbers: ["8885550101-8885550189"], overflow: "8885550199"),
      settings: "management.token_sha256 = [\"#{Digest::SHA256.hexdigest(TOKEN)}\"]")
    Dir.mktmpdir("ringwell-app") do |folder|
      app = make(folder, running.url)
      page = run_program("bin/rails", "runner", VISIT, folder: app, environment: {"RINGWELL_KEY" => KEY})
      number = page[%r{<p>Call (888-555-01\d\d)</p>}, 1]
      assert number, page
      assert_equal({"m1" => "autos"}, attribution(running, number.delete("-"))["parameters"])
      tests = run_program("bin/rails", "test", folder: app, environment: {"RINGWELL_KEY" => nil})
      assert_match(/2 runs, \d+ assertions, 0 failures, 0 errors/, tests)
    end
  end

  private

  def make(folder, url)
    run_program("ruby", "-e", "load Gem.bin_path('railties', 'rails')", "--", "new", "shop", "--quiet", *LEFT_OUT,
      folder:)
    app = "#{folder}/shop"
    File.write("#{app}/Gemfile", GEMFILE)
    # Debian has it with the database only.
    application = File.read("#{app}/config/application.rb")
    File.write("#{app}/config/application.rb", application.sub(%r{^require "active_model/railtie"$}, ""))
    said = run_program("bin/rails", "generate", "ringwell:install", "--url", url, "--pool", "42", folder: app)
    assert_match(/create +config.ringwell.yml.*ringwell_number "42"/m, said)
    write(app)
    app
  end

  def write(app)
    File.write("#{app}/config/routes.rb", 'Rails.application.routes.draw { root "pages#show" }')
    File.write("#{app}/app/controllers/pages_controller.rb", "class PagesController < ApplicationController; end")
    FileUtils.mkdir_p("#{app}/app/views/pages")
    File.write("#{app}/app/views/pages/show.html.erb", PAGE)
    File.write("#{app}/app/views/layouts/application.html.erb", "<%= yield %>")
    FileUtils.mkdir_p("#{app}/test/controllers")
    File.write("#{app}/test/controllers/pages_controller_test.rb", PAGE_TEST)
    assert_includes File.read("#{app}/test/test_helper.rb"), 'require "ringwell/minitest"'
  end

  def attribution(running, number)
    uri = URI("#{running.url}/v1/attributions?number=#{number}")
    JSON.parse(Net::HTTP.get(uri, {"authorization" => "Bearer #{TOKEN}"}))
  end

  # Not in the bundle of whoever runs the tests.
  def run_program(*command, folder:, environment: {})
    clean = ENV.keys.grep(/\A(BUNDLE|BUNDLER|RUBYOPT|RUBYLIB|RAILS_ENV|RINGWELL_(?!KEY))/).to_h { |name| [name, nil] }
    said, status = Open3.capture2e({**clean, "DISABLE_SPRING" => "1", **environment}, *command, chdir: folder)
    assert_predicate status, :success?, said
    said
  end
end
