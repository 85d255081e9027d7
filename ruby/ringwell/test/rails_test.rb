# frozen_string_literal: true

require "stringio"

# The example Rails application, with a real server behind it.
class RailsTest < RingwellTest
  KEY_OF_42 = "s3cr3t-of-pool-42"
  POOL = Server.pool(42, key: KEY_OF_42, numbers: ["8885550101-8885550189"], overflow: "8885550199")

  class << self
    # A process can have only one Rails application.
    def shop
      @shop ||= begin
        ENV["RAILS_ENV"] = "test"
        ENV["RINGWELL_URL"] = server.url
        require_relative "../examples/rails/app"
        Shop.initialize!
        Shop.instance
      end
    end

    def server
      @server ||= Server.new(POOL).tap do |running|
        # Do not stop the server when a forked child exits.
        at_exit { running.stop if Process.pid == running.parent }
      end
    end
  end

  def setup
    super
    begin
      require "rails"
    rescue LoadError
      skip "Rails is not installed"
    end
    @shop = self.class.shop
    Ringwell.client = Ringwell::Client.new(self.class.server.url, deadline: 10, pools: [
      Ringwell::Pool.new(id: 42, key: KEY_OF_42)
    ])
  end

  def teardown
    super
    Ringwell.client = nil
  end

  it "the client comes from config/ringwell.yml" do
    config = Ringwell::Config.read(@shop.config_for(:ringwell))
    assert_equal [[self.class.server.url], 0.15, 16, "42", KEY_OF_42],
      [config.endpoints, config.deadline, config.connections, config.pools[0].id,
        config.pools[0].key]
  end

  it "an application without the file has no client" do
    assert_nil Ringwell::Rails::Settings.read(Struct.new(:root).new(Pathname.new("/nowhere")))
    before = Ringwell::Rails.settings
    client = Ringwell.client
    Ringwell::Rails::Settings.apply(nil)
    assert_same client, Ringwell.client
    assert_raises(Ringwell::ConfigError) { Ringwell::Rails.calls }
  ensure
    Ringwell::Rails.settings = before
  end

  it "the API is in front of all other middleware, if it is enabled" do
    assert_equal Ringwell::Rack::Middleware, @shop.middleware.first.klass
    inserted = []
    middleware = Object.new
    middleware.define_singleton_method(:insert_before) { |*words, **options| inserted << [*words, options] }
    [nil, false, {bulk_only: true}].each do |wanted|
      config = Struct.new(:ringwell).new(Struct.new(:serve_api).new(wanted))
      Ringwell::Rails::Settings.serve_api(Struct.new(:config, :middleware).new(config, middleware))
    end
    assert_equal [[0, Ringwell::Rack::Middleware, {bulk_only: true}]],
      inserted.map { |words| words.values_at(0, 1, 3) }
    status = page("/api/2013-07-01/bulk.json", status: 405)
    assert_includes status, "MethodNotAllowed"
  end

  it "in a Rails application the gem alone is enough" do
    assert load(File.expand_path("../lib/ringwell.rb", __dir__))
  end

  it "a file that has only a section for production does not break the other environments" do
    {"test" => Ringwell::Fake, "development" => Ringwell::Fake, "production" => Ringwell::Client}
      .each { |environment, type| assert_instance_of type, client_in(environment, <<~YAML) }
        production:
          endpoints: ["unix:/run/ringwell.sock"]
          pools:
            "42": { key: "s3cr3t-of-pool-42", overflow: "8885550199" }
      YAML
    error = assert_raises(Ringwell::ConfigError) { client_in("staging", "production: { fake: true }") }
    assert_equal "config/ringwell.yml has no section for staging", error.message
    fake = client_in("test", "test: { fake: true, pools: { 42: { overflow: 8885550199 } } }")
    assert_equal "200-555-0101", fake.allocate("42").formatted
    fake.exhaust!("42")
    assert_equal "8885550199", fake.allocate("42", key: "any").number
  end

  it "the snippet's tag has the site's public key, and is empty without settings" do
    view = ActionView::Base.empty
    assert_equal "", view.ringwell_snippet_tag
    settings = {url: "https://calls.example/", site: "pk_shop"}
    with_settings(snippet: settings) do
      assert_equal '<script src="https://calls.example/rw.js" async="async" data-site="pk_shop"></script>',
        view.ringwell_snippet_tag
      tag = view.ringwell_snippet_tag(integrity: "sha384-x", file: "rw-1f.js", id: "rw")
      ['src="https://calls.example/rw-1f.js"', 'integrity="sha384-x"', 'crossorigin="anonymous"', 'id="rw"']
        .each { |part| assert_includes tag, part }
      assert_raises(Ringwell::ConfigError) { view.ringwell_snippet_tag(site: KEY_OF_42) }
      assert_raises(Ringwell::ConfigError) { view.ringwell_snippet_tag(url: "javascript:alert(1)//") }
      view.define_singleton_method(:content_security_policy_nonce) { "n0" }
      assert_includes view.ringwell_snippet_tag, 'nonce="n0"'
    end
  end

  it "a job sends an outcome, again while the server fails, and never twice" do
    skip "ActiveJob is not installed" unless defined?(Ringwell::OutcomeJob)
    answers = ["503 Busy", "429 Too Many Requests", "201 Created"]
    served = stub_server { StubServer.answer("{}", status: answers.shift) }
    with_settings(management: {url: served.url, token: "s3cr3t"}) do
      job = Ringwell::OutcomeJob.new("c_7", type: "sale", value: "129.50", currency: "EUR")
      2.times { assert_raises(Ringwell::OutcomeJob::Retryable) { job.perform(*job.arguments) } }
      job.perform(*job.arguments)
    end
    keys = served.requests.map { |one| one.head[/idempotency-key: (\S+)/, 1] }
    assert_equal [3, 1], [keys.compact.size, keys.uniq.size]
    refused = stub_server { StubServer.answer("{}", status: "404 Not Found") }
    with_settings(management: {url: refused.url, token: "s3cr3t"}) do
      assert_raises(Ringwell::ServerError) do
        Ringwell::OutcomeJob.new.perform("c_7", type: "sale", external_id: "a")
      end
    end
    error = assert_raises(Ringwell::ConfigError) { Ringwell::Rails.calls }
    assert_match(/no management/, error.message)
  end

  it "a job that cannot reach a server is rescheduled" do
    skip "ActiveJob is not installed" unless defined?(Ringwell::OutcomeJob)
    ActiveJob::Base.queue_adapter = :test
    with_settings(management: {url: nobody, token: "s3cr3t"}) do
      Ringwell::OutcomeJob.perform_now("c_7", type: "sale", external_id: "a")
    end
    assert_equal [3], ActiveJob::Base.queue_adapter.enqueued_jobs.map { |job| (job[:at] - Time.now.to_f).round }
  end

  it "the log has the client's events" do
    log = StringIO.new
    before, ActiveSupport::LogSubscriber.logger = ActiveSupport::LogSubscriber.logger, Logger.new(log)
    page("/")
    gone = client(nobody, overflow: {"1" => "8005550100"})
    gone.allocate(1, key: KEY)
    gone.bulk("{}") rescue nil
    assert_match(/DEBUG.*Ringwell bulk \(\d+\.\dms\) http:\S+ 1 rows, 0 overflowed, 0 failed$/, log.string)
    assert_match(/WARN.*Ringwell connect \(\d+\.\dms\) http:\S+ unreachable$/, log.string)
    assert_match(/WARN.*Ringwell bulk \(\d+\.\dms\) http:\S+ 2 bytes unreachable$/, log.string)
    refute_match(/8005550100|#{KEY}/, log.string)
  ensure
    ActiveSupport::LogSubscriber.logger = before
  end

  it "odd parameters of a visitor cause no error page" do
    odd = ["campaign[]=1&campaign[]=2", "campaign[a][b]=1", "campaign=#{"ä" * 900}",
      "campaign=", "", "campaign=a%0d%0ab%22%5c", "campaign=%F0%9F%93%9E"]
    odd.each { |query| assert_equal 1, numbers(page("/?#{query}")).uniq.size, query }
    assert_equal 1, numbers(page("/all?#{Array.new(200) { |i| "p#{i}=#{"x" * 100}" }.join("&")}")).size
    assert_equal 1, numbers(page("/all?ring_pool_key=1&ringwell_visitor=2&a[b]=c&=e&%00=f")).size
  end

  it "parameters are cut to a length that can be stored" do
    clean = Ringwell::Rails::PageParameters
    assert_equal({}, clean.clean(nil))
    assert_equal({"a" => "x" * 512, "b" => nil, "c" => 3},
      clean.clean({a: "x" * 600, b: nil, c: 3, d: [1], e: {f: 1}, "ring_pool_key" => 1}))
    assert_equal({"a" => "1"}, clean.clean(ActionController::Parameters.new(a: "1", b: {c: "2"})))
    assert_equal "ä" * 64, clean.visitor("ä" * 100)
    assert_nil clean.visitor(["a"])
    long = clean.clean((1..100).to_h { |i| ["p#{i}", "ä" * 200] })
    assert_includes 4..6, long.size
  end

  it "a page requests and shows one number, the next page another one" do
    events = []
    listener = ActiveSupport::Notifications.subscribe("bulk.ringwell") { |*, payload|
      events << payload
    }
    pages = 2.times.map { numbers(page("/?campaign=autos")) }
    pages.each { |shown| assert_equal 1, shown.uniq.size, "both places of a page" }
    refute_equal pages[0], pages[1]
    assert_equal [1, 1], events.map { |payload| payload[:rows] }
  ensure
    ActiveSupport::Notifications.unsubscribe(listener)
  end

  in_every_mode "pages rendered at the same time have their own numbers" do |mode|
    page("/")
    shown = Modes.run(mode, 8) { numbers(page("/?campaign=#{mode}")).uniq }
    assert_equal 8, shown.flatten.uniq.size
    assert_equal [1], shown.map(&:size).uniq
  end

  it "the API is served beside the pages" do
    suffix = "42/allocate_number.json?ring_pool_key=#{KEY_OF_42}&m1=a"
    body = %({"requests":[{"api_suffix":"#{suffix}"}]})
    # `curl -d` sends a form. A middleware parses it, and Rack 3 does not rewind the input.
    answer = page("/api/2013-07-01/bulk.json", "REQUEST_METHOD" => "POST",
      "CONTENT_TYPE" => "application/x-www-form-urlencoded",
      "CONTENT_LENGTH" => body.bytesize.to_s,
      "rack.input" => StringIO.new(body))
    assert_match(/\A{"responses":\[{"promo_number_formatted":"888-555-01/, answer)
  end

  it "without a server a page has the overflow number" do
    Ringwell.client = client(nobody,
      pools: [Ringwell::Pool.new(id: 42, key: KEY_OF_42,
        overflow: "8885550199")])
    assert_equal ["888-555-0199"], numbers(page("/")).uniq
  end

  it "Rails writes the values to JSON as they do themselves" do
    shown = Ringwell::Allocation.new(pool: "1", number: "8885550142", reason: :overflow)
    assert_equal JSON.generate(shown.as_json), ActiveSupport::JSON.encode(shown)
    assert_equal [JSON.parse(shown.to_json)], JSON.parse([shown].to_json)
    assert_equal({"responses" => [shown.as_json]},
      JSON.parse(Ringwell::Batch.new([shown]).to_json))
  end

  private

  # Runs the block while the application has these settings.
  def with_settings(**settings)
    before = Ringwell::Rails.settings
    Ringwell::Rails.settings = Ringwell::Config.new(fake: true, **settings)
    yield
  ensure
    Ringwell::Rails.settings = before
  end

  # Returns the client of an application in this environment, with this config/ringwell.yml.
  def client_in(environment, yaml)
    Dir.mktmpdir do |root|
      Dir.mkdir("#{root}/config")
      File.write("#{root}/config/ringwell.yml", yaml)
      before = Rails.env
      Rails.env = environment
      app = Class.new(Rails::Application)
      app.config.root = root
      Ringwell::Rails::Settings.read(app.instance).client
    ensure
      Rails.env = before
    end
  end

  def page(path, status: 200, **more)
    path, query = path.split("?", 2)
    env = {"REQUEST_METHOD" => "GET", "PATH_INFO" => path, "QUERY_STRING" => query.to_s,
            "SERVER_NAME" => "shop", "SERVER_PORT" => "80", "rack.url_scheme" => "http",
            "rack.input" => StringIO.new, "rack.errors" => $stderr}.merge(more)
    got, _, body = @shop.call(env)
    text = +""
    body.each { |part| text << part }
    assert_equal status, got, text
    text
  end

  def numbers(text) = text.scan(/888-555-\d{4}/)
end
