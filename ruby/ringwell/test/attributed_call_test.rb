# frozen_string_literal: true

require "bigdecimal"
require "stringio"
require "timeout"
require "ringwell/calls"
require "ringwell/webhooks"

# A call with a real server: the client gets a number, a provider reports the call, the application
# records its outcome, and webhooks report both to the application.
class AttributedCallTest < RingwellTest
  include Telephone

  PATIENCE = 20

  def setup
    super
    @events = Queue.new
    @receiver = stub_server { |request| receive(request) }
    @server = telephone_server(<<~TOML)
      [calls.webhooks]
      allow_networks = ["127.0.0.0/8"]
      allow_http = true
      allow_ports = [#{URI(@receiver.url).port}]
    TOML
  end

  it "a number's call is returned with its visitor, and its outcome is recorded once" do
    made = ask(@server, "/v1/webhooks", {url: "#{@receiver.url}/hooks", types: %w[call.completed conversion.recorded]})
    @hooks = Ringwell::Webhooks.new(made.fetch("secret")) { |hooks| hooks.on { |event| @events << event } }
    number = client(@server.url).allocate("42", key: KEY, params: {m1: "autos"}).number

    report(event: "started", to: "+1#{number}", from: "+14155551234")
    report(event: "answered")
    report(event: "ended", status: "answered", talk_seconds: 58)
    completed = event("call.completed").data
    assert_equal [58, {"m1" => "autos"}],
      [completed["talk_seconds"], completed.dig("attribution", "parameters")]

    outcomes = Ringwell::Calls.new(@server.url, token: TOKEN)
    sale = {type: "sale", value: BigDecimal("129.50"), currency: "EUR", external_id: "order 7"}
    2.times { outcomes.outcome(completed["id"], **sale) }
    recorded = event("conversion.recorded").data
    assert_equal completed["id"], recorded["call"]["id"]
    assert_equal %w[sale 129.5 EUR], recorded["conversion"].values_at("type", "value", "currency")
    kept = ask(@server, "/v1/events?after=0")["events"].map { |one| one["type"] }
    assert_equal %w[call.started call.answered call.completed conversion.recorded], kept
    error = assert_raises(Ringwell::ServerError) { outcomes.outcome("c_none", **sale) }
    assert_equal 404, error.status
  end

  private

  # Passes a delivery to the Rack application, like a Rack server.
  def receive(request)
    headers = request.head.scan(/^([\w-]+): (.*)\r$/).to_h do |name, value|
      ["HTTP_#{name.upcase.tr("-", "_")}", value]
    end
    status, = @hooks.call("REQUEST_METHOD" => "POST", "rack.input" => StringIO.new(request.body), **headers)
    StubServer.answer("", status: "#{status} it")
  end

  # Waits for an event of that type, and returns it.
  def event(type)
    Timeout.timeout(PATIENCE) do
      loop do
        event = @events.pop
        return event if event.type == type
      end
    end
  end
end
