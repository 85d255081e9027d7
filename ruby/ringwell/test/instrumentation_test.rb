# frozen_string_literal: true

require "contract"
require "open3"

# The events for subscribers, and the headers that a client adds to its requests.
class InstrumentationTest < RingwellTest
  it "a batch of bytes is an event" do
    served = stub_server { |request| numbers(request) }
    one = client(served.url, deadline: 5, instrumenter: events = Contract::Events.new)
    body = Ringwell::Request.body([Ringwell::Request.new(pool: 1, key: KEY)])
    assert_includes one.bulk(body), "8885550000"
    assert_equal [{bytes: body.bytesize, deadline: 5, endpoint: served.url, reused: false}],
      events.payloads("bulk.ringwell")
    gone = client(nobody, instrumenter: events)
    assert_raises(Ringwell::ConnectError) { gone.bulk(body, deadline: 1) }
    assert_equal [1, :unreachable], events.payloads("bulk.ringwell").last.values_at(:deadline, :reason)
  end

  it "a connect is timed, even if it fails" do
    events = Timed.new
    one = client(full, deadline: 0.05, instrumenter: events, overflow: {"1" => "8005550100"})
    assert_equal :late, one.allocate(1, key: KEY).reason
    connects = events.seen.select { |name, *| name == "connect.ringwell" }
    assert_equal [:late], connects.map { |_, payload, _| payload[:reason] }
    assert_operator connects[0][2], :>=, 0.04
    refused = client(nobody, instrumenter: events, overflow: {"1" => "8005550100"})
    refused.allocate(1, key: KEY)
    assert_equal :unreachable, events.seen.reverse.assoc("connect.ringwell")[1][:reason]
  end

  it "an instrumenter that returns nothing does not lose a batch" do
    silent = Object.new
    silent.define_singleton_method(:instrument) { |_name, _payload, &work| work.call && nil }
    fake = Ringwell::Fake.new(instrumenter: silent).pool(1, key: KEY, numbers: %w[8885550101])
    assert_equal "8885550101", fake.allocate(1, key: KEY).number
    assert_raises(Ringwell::ConfigError) { client(nobody, instrumenter: 3) }
  end

  it "ActiveSupport gets events, even if it is loaded after the client was created" do
    script = <<~RUBY
      require "ringwell"
      client = Ringwell::Client.new("unix:/nowhere", overflow: { "1" => "8005550100" })
      client.allocate(1, key: "k")
      require "active_support"
      require "active_support/notifications"
      ActiveSupport::Notifications.subscribe("bulk.ringwell") { |*, payload| p payload[:reason] }
      client.allocate(1, key: "k")
    RUBY
    lib = File.expand_path("../lib", __dir__)
    said, status = Open3.capture2e(RbConfig.ruby, "-W0", "-I", lib, "-e", script)
    skip "ActiveSupport is not installed" if said.include?("cannot load such file -- active_support")
    assert_equal [":unreachable\n", true], [said, status.success?]
  end

  it "requests identify the client, and have the headers of a hash or a block" do
    served = stub_server { |request| numbers(request) }
    spans = %w[00-1-1-01 00-2-2-01]
    [nil, {traceparent: "00-0-0-01", "User-Agent" => "mine"},
      -> { {"traceparent" => spans.shift} unless spans.empty? }].each do |headers|
      one = client(served.url, deadline: 5, headers:)
      3.times { one.allocate(1, key: KEY) } if headers.respond_to?(:call)
      one.allocate(1, key: KEY)
    end
    heads = served.requests.map { |request| request.head.scan(/^(?:user-agent|traceparent): .*(?=\r)/) }
    agent = "user-agent: ringwell-ruby/#{Ringwell::VERSION}"
    assert_equal [[agent], ["user-agent: mine", "traceparent: 00-0-0-01"],
      [agent, "traceparent: 00-1-1-01"], [agent, "traceparent: 00-2-2-01"], [agent], [agent]],
      heads
  end

  it "a header that would corrupt a request is refused" do
    [{"a b" => "1"}, {"a" => "1\r\nb: 2"}, {"content-length" => "3"}, {"Host" => "x"},
      {"a" => "ä"}].each do |headers|
      assert_raises(Ringwell::ConfigError, headers.inspect) { client(nobody, headers:) }
      called = client(nobody, headers: -> { headers }, overflow: {"1" => "8005550100"})
      assert_raises(Ringwell::ConfigError) { called.allocate(1, key: KEY) }
    end
    assert_raises(Ringwell::ConfigError) { client(nobody, headers: "a: b") }
  end

  # An instrumenter that measures time, like ActiveSupport.
  class Timed
    attr_reader :seen

    def initialize = @seen = []

    def instrument(name, payload)
      started = Ringwell::Deadline.now
      yield
    ensure
      @seen << [name, payload, Ringwell::Deadline.now - started]
    end
  end

  private

  def numbers(request) = StubServer.answer(StubServer.rows(request.body))
end
