# frozen_string_literal: true

require "net/http"
require "open3"

# A Rails application from `rails new` and the generator: the view helper shows a number, the
# browser swaps a number, and calls are attributed to their visitors.
class NewAppTest < RingwellTest
  include Telephone

  GEM = File.expand_path("..", __dir__)
  # Excludes the database, assets and everything that would be downloaded.
  LEFT_OUT = %w[bundle git active-record active-storage action-mailer action-mailbox action-text action-cable
    sprockets asset-pipeline javascript turbolinks bootsnap listen spring webpack-install hotwire
    jbuilder system-test puma docker ci rubocop brakeman thruster kamal solid devcontainer keeps]
    .map { |name| "--skip-#{name}" }.freeze
  GEMFILE = <<~RUBY
    gem "railties"
    gem "actionpack"
    gem "activejob"
    gem "puma"
    gem "ringwell", path: #{GEM.inspect}
  RUBY
  PAGE = '<%= ringwell_snippet_tag %><p>Call <%= ringwell_number "42", ' \
         "visitor: cookies[:visitor], params: { m1: params[:campaign] } %></p>" \
         "<i>800-555-0100</i>"
  ROUTES = 'Rails.application.routes.draw { root "pages#show"; post "order" => "pages#order" }'
  PAGE_TEST = <<~RUBY
    require "test_helper"

    class PagesControllerTest < ActionDispatch::IntegrationTest
      2.times do |i|
        test "a visitor from a campaign has a number \#{i}" do
          get "/?campaign=autos"
          assert_response :success
          assert_equal "2005550101", assert_ringwell_number("42", params: { m1: "autos" })
          assert_includes response.body, "200-555-0101"
        end
      end
    end
  RUBY
  # The job runs once when the order is placed, and again because a queue may deliver twice.
  CONTROLLER = <<~RUBY
    class PagesController < ApplicationController
      skip_forgery_protection
      before_action { cookies[:visitor] ||= SecureRandom.uuid }

      def order
        2.times do
          Ringwell::OutcomeJob.perform_later(params[:call], type: "sale", value: "129.50", currency: "EUR",
            external_id: "order 7")
        end
        head :no_content
      end
    end
  RUBY

  # A person's browser, because robots get no number.
  AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36"

  it "from rails new to a number on a page, a number swapped in a browser, attributed calls and an outcome" do
    %w[railties puma].each do |gem|
      skip "#{gem} is not installed" if Gem::Specification.find_all_by_name(gem).empty?
    end
    shop = Server.free_port
    running = telephone_server(<<~TOML)
      [[site]]
      key = "pk_shop"
      origins = ["http://127.0.0.1:#{shop}"]
      [[site.swap]]
      number = "+18005550100"
      ring_pool = 42
    TOML
    Dir.mktmpdir("ringwell-app") do |folder|
      app = make(folder, running.url)
      tests = Thread.new { run_program("bin/rails", "test", folder: app, environment: {"RINGWELL_KEY" => nil}) }
      serve(app, shop) do
        call = visit(running, shop)
        outcome(running, shop, call)
        in_a_browser(app, running, shop)
      end
      assert_match(/2 runs, \d+ assertions, 0 failures, 0 errors/, tests.value)
    end
  end

  private

  # Runs the application in its own server.
  def serve(app, port)
    rails = Process.spawn(clean.merge("RINGWELL_KEY" => KEY), "bin/rails", "server", "--port", port.to_s,
      "--binding", "127.0.0.1", chdir: app, %i[out err] => File::NULL)
    wait_for(port)
    yield
  ensure
    if rails
      Process.kill(:KILL, rails)
      Process.wait(rails)
    end
  end

  # A visitor from a campaign sees a number and calls it.
  #
  # @return [String] the call's id
  def visit(running, shop)
    page = Net::HTTP.get(URI("http://127.0.0.1:#{shop}/?campaign=autos"))
    number = page[%r{<p>Call (888-555-01\d\d)</p>}, 1]
    assert number, page
    call = call_of(running, number)
    assert_equal({"m1" => "autos"}, call.dig("attribution", "parameters"))
    call.fetch("id")
  end

  # The job finds the server's management address in config/ringwell.yml, and the sale is recorded
  # once.
  def outcome(running, shop, call)
    answer = Net::HTTP.post_form(URI("http://127.0.0.1:#{shop}/order"), "call" => call)
    assert_equal "204", answer.code, answer.body
    kept = ask(running, "/v1/events?after=0")["events"].select { |one| one["type"] == "conversion.recorded" }
    assert_equal 1, kept.size, kept
    conversion = kept[0].fetch("data")
    assert_equal [call, "sale", "129.50", "EUR"],
      [conversion["call"]["id"], *conversion["conversion"].values_at("type", "value", "currency")]
  end

  # Chromium runs the page's script.
  def in_a_browser(app, running, shop)
    return unless system("which chromium", out: File::NULL)

    shown = run_program("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--user-agent=#{AGENT}",
      "--virtual-time-budget=5000", "--dump-dom", "http://127.0.0.1:#{shop}/?gclid=c-7", folder: app)
    number = shown[%r{<i[^>]*>(888-555-01\d\d)</i>}, 1]
    assert number, shown
    visitor = call_of(running, number).dig("attribution", "parameters")
    assert_equal "c-7", visitor["gclid"], visitor
  end

  def wait_for(port)
    tries = 0
    begin
      TCPSocket.new("127.0.0.1", port).close
    rescue Errno::ECONNREFUSED
      raise if (tries += 1) > 4000

      sleep 0.005
      retry
    end
  end

  def make(folder, url)
    run_program("ruby", "-e", "load Gem.bin_path('railties', 'rails')", "--", "new", "shop", "--quiet", *LEFT_OUT,
      folder:)
    app = "#{folder}/shop"
    File.write("#{app}/Gemfile", GEMFILE)
    # Only Debian's database package contains active_model/railtie.
    application = File.read("#{app}/config/application.rb")
    inline = "config.active_job.queue_adapter = :inline"
    File.write("#{app}/config/application.rb", application.sub(%r{^require "active_model/railtie"$}, "")
      .sub(/^ *config.load_defaults .*$/) { |line| "#{line}\n    #{inline}" })
    said = run_program("bin/rails", "generate", "ringwell:install", "--url", url, "--pool", "42", folder: app)
    assert_match(/create +config.ringwell.yml.*ringwell_number "42"/m, said)
    settings = File.read("#{app}/config/ringwell.yml")
    added = <<~YAML
      development:
        snippet: { url: "#{url}", site: "pk_shop" }
        management: { url: "#{url}", token: "#{TOKEN}" }
    YAML
    File.write("#{app}/config/ringwell.yml", settings.sub("development:\n", added))
    write(app)
    app
  end

  def write(app)
    File.write("#{app}/config/routes.rb", ROUTES)
    File.write("#{app}/app/controllers/pages_controller.rb", CONTROLLER)
    FileUtils.mkdir_p("#{app}/app/views/pages")
    File.write("#{app}/app/views/pages/show.html.erb", PAGE)
    File.write("#{app}/app/views/layouts/application.html.erb", "<%= yield %>")
    FileUtils.mkdir_p("#{app}/test/controllers")
    File.write("#{app}/test/controllers/pages_controller_test.rb", PAGE_TEST)
    assert_includes File.read("#{app}/test/test_helper.rb"), 'require "ringwell/minitest"'
  end

  # Calls the number, waits until the call is attributed, and returns it.
  def call_of(running, number)
    call = "c#{number}"
    report(call_id: call, event: "started", to: "+1#{number.delete("-")}", from: "+14155551234")
    report(call_id: call, event: "ended", status: "answered", talk_seconds: 9)
    100.times do
      found = ask(running, "/v1/calls")["calls"].find { |one| one["provider_call_id"] == call }
      return found if found && !["pending", nil].include?(found.dig("attribution", "outcome"))

      sleep 0.02
    end
    flunk "call #{call} was not attributed: #{ask(running, "/v1/calls")}"
  end

  # Runs a program outside of these tests' bundle.
  def run_program(*command, folder:, environment: {})
    said, status = Open3.capture2e({**clean, **environment}, *command, chdir: folder)
    assert_predicate status, :success?, said
    said
  end

  def clean
    ENV.keys.grep(/\A(BUNDLE|BUNDLER|RUBYOPT|RUBYLIB|RAILS_ENV|RINGWELL_(?!KEY))/).to_h { |name| [name, nil] }
      .merge("DISABLE_SPRING" => "1")
  end
end
