# frozen_string_literal: true

require "stringio"

# The example application of Rails, with a real server behind it.
class RailsTest < RingwellTest
  # Files are read before the first test loads Rails.
  BEFORE_RAILS = Ringwell::Client.default_instrumenter
  KEY_OF_42 = "s3cr3t-of-pool-42"
  POOL = Server.pool(42, key: KEY_OF_42, numbers: ["8885550101-8885550189"], overflow: "8885550199")

  class << self
    # An application of Rails is made once in a process.
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
        # Not in children that were forked meanwhile.
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
    Ringwell.client = nil
    railtie = Ringwell::Rails::Railtie.instance
    elsewhere = Struct.new(:root).new(Pathname.new("/nowhere"))
    railtie.initializers.find { |one| one.name == "ringwell.client" }.bind(railtie).run(elsewhere)
    assert_raises(Ringwell::ConfigError) { Ringwell.client }
  end

  it "ActiveSupport is told without being asked for, if it is there" do
    assert_nil BEFORE_RAILS
    assert_same ActiveSupport::Notifications, Ringwell::Client.default_instrumenter
  end

  it "a page asks once and shows one number, the next page another one" do
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

  in_every_mode "pages that are made at the same time have numbers of their own" do |mode|
    page("/")
    shown = Modes.run(mode, 8) { numbers(page("/?campaign=#{mode}")).uniq }
    assert_equal 8, shown.flatten.uniq.size
    assert_equal [1], shown.map(&:size).uniq
  end

  it "the API is served beside the pages" do
    suffix = "42/allocate_number.json?ring_pool_key=#{KEY_OF_42}&m1=a"
    body = %({"requests":[{"api_suffix":"#{suffix}"}]})
    answer = page("/api/2013-07-01/bulk.json", "REQUEST_METHOD" => "POST",
                                               "rack.input" => StringIO.new(body))
    assert_match(/\A{"responses":\[{"promo_number_formatted":"888-555-01/, answer)
  end

  it "a page without a server has the overflow number" do
    Ringwell.client = client(nobody,
                             pools: [Ringwell::Pool.new(id: 42, key: KEY_OF_42,
                                                        overflow: "8885550199")])
    assert_equal ["888-555-0199"], numbers(page("/")).uniq
  end

  it "values are written to JSON by Rails as by themselves" do
    shown = Ringwell::Allocation.new(pool: "1", number: "8885550142", reason: :overflow)
    assert_equal JSON.generate(shown.as_json), ActiveSupport::JSON.encode(shown)
    assert_equal [JSON.parse(shown.to_json)], JSON.parse([shown].to_json)
    assert_equal({ "responses" => [shown.as_json] },
                 JSON.parse(Ringwell::Batch.new([shown]).to_json))
  end

  private

  def page(path, **more)
    path, query = path.split("?", 2)
    env = { "REQUEST_METHOD" => "GET", "PATH_INFO" => path, "QUERY_STRING" => query.to_s,
            "SERVER_NAME" => "shop", "SERVER_PORT" => "80", "rack.url_scheme" => "http",
            "rack.input" => StringIO.new, "rack.errors" => $stderr }.merge(more)
    status, _, body = @shop.call(env)
    text = +""
    body.each { |part| text << part }
    assert_equal 200, status, text
    text
  end

  def numbers(text) = text.scan(/888-555-\d{4}/)
end
