# frozen_string_literal: true

require "bigdecimal"
require "ringwell/calls"

# Outcomes of calls, as sent to a server.
class CallsTest < RingwellTest
  TOKEN = "a-token-of-the-tests"

  it "an outcome is a repeatable request" do
    served = stub_server { StubServer.answer('{"id":"o_1"}', status: "201 Created") }
    calls = Ringwell::Calls.new(served.url, token: TOKEN)
    at = Time.utc(2026, 11, 22, 8, 0, 0.5r)
    assert_equal({"id" => "o_1"},
      calls.outcome("c_7", type: "sale", value: BigDecimal("129.50"), currency: "EUR",
        at:, external_id: "order-7"))
    request = served.requests[0]
    assert_equal "POST /v1/calls/c_7/outcomes HTTP/1.1", request.head.lines(chomp: true)[0]
    ["authorization: Bearer #{TOKEN}", "content-type: application/json",
      "idempotency-key: c_7 sale order-7"].each { |line| assert_includes request.head, "#{line}\r\n" }
    assert_equal({"type" => "sale", "value" => "129.5", "currency" => "EUR",
                   "at" => "2026-11-22T08:00:00.500Z", "external_id" => "order-7"}, JSON.parse(request.body))
    calls.outcome(8, type: "lead", value: 3, currency: "USD", at: "2026-11-22", idempotency_key: "mine")
    assert_equal '{"type":"lead","value":"3","currency":"USD","at":"2026-11-22"}', served.requests[1].body
    assert_includes served.requests[1].head, "idempotency-key: mine\r\n"
    refute_includes calls.inspect, TOKEN
  end

  it "an invalid answer or a refusal is raised" do
    {StubServer.answer("", status: "204 No Content") => {},
      StubServer.answer("{") => Ringwell::ProtocolError,
      StubServer.answer('{"title":"Not Found"}', status: "404 Not Found") => Ringwell::ServerError}
      .each do |reply, wanted|
        calls = Ringwell::Calls.new(stub_server { reply }.url, token: TOKEN)
        sent = -> { calls.outcome(7, type: "sale", external_id: "a") }
        wanted.is_a?(Hash) ? assert_equal(wanted, sent.call) : assert_raises(wanted) { sent.call }
      end
    assert_raises(Ringwell::ConnectError) do
      Ringwell::Calls.new(nobody, token: TOKEN).outcome(7, type: "sale", external_id: "a")
    end
  end

  {[1.5, {}] => /must be exact/, ["1", {}] => /needs a currency/,
    [nil, {external_id: nil}] => /needs an external_id/, [nil, {external_id: "ä"}] => /printable/,
    [nil, {call: "a/b"}] => /call must be an id/}.each do |(value, more), message|
    it "an outcome is refused: #{value} #{more}" do
      calls = Ringwell::Calls.new(nobody, token: TOKEN)
      more = {external_id: "a"}.merge(more)
      call = more.delete(:call) || 7
      error = assert_raises(ArgumentError) { calls.outcome(call, type: "sale", value:, **more) }
      assert_match message, error.message
    end
  end
end
