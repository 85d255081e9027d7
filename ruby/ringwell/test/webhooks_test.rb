# frozen_string_literal: true

require "ringwell/webhooks"

# A server's webhooks, in requests signed by another implementation.
class WebhooksTest < RingwellTest
  Webhooks = Ringwell::Webhooks
  Signature = Webhooks::Signature
  # The specification's own libraries use this secret in their tests.
  VECTOR = {"secret" => "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", "id" => "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
             "timestamp" => 1_649_367_553, "body" => '{"email":"test@example.com","username":"test_user"}',
             "signature" => "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw="}.freeze
  # Requests signed by the Python library: see fixtures/webhooks.py.
  SIGNED = JSON.parse(File.read(File.expand_path("fixtures/webhooks.json", __dir__))).freeze

  it "requests signed by the Python library are accepted, but not with one bit changed" do
    [VECTOR, *SIGNED].each_with_index do |request, number|
      assert_nil wrong(request)
      assert_equal request["signature"], Signature.sign(*request.values_at("secret", "id", "timestamp", "body"))
      changed = request["body"].b
      at = number % changed.bytesize
      changed.setbyte(at, changed.getbyte(at) ^ 1)
      assert_equal "no signature is right", wrong(request.merge("body" => changed))
      assert_equal "no signature is right", wrong(request.merge("id" => "#{request["id"]}x"))
      assert_match(/no signature/, wrong(request.merge("secret" => SIGNED[number - 2]["secret"])))
    end
  end

  it "a time that is too old, in the future or malformed is refused" do
    now = VECTOR["timestamp"]
    {now + 300 => nil, now - 300 => nil, now + 301 => /too old/, now - 301 => /in the future/}
      .each { |clock, message| check(message, wrong(VECTOR, now: clock)) }
    ["x", "1.5", "", "-1", "9" * 13].each do |time|
      assert_equal "webhook-timestamp is not a time", wrong(VECTOR.merge("timestamp" => time), now:)
    end
  end

  it "one valid signature among several is enough, none is refused, and malformed ones are ignored" do
    right = VECTOR["signature"]
    false_one = "v1,#{"A" * 43}="
    {"#{false_one} #{false_one} #{right} #{false_one}" => true, "v1a,#{right[3..]} #{right}" => true,
      "#{false_one} " * 4 => false, "v1," => false, right[0..-2] => false, right[3..] => false,
      "v2,#{right[3..]}" => false, "v1,ä" => false, " " => false, "#{false_one} " * 16 + right => false}
      .each do |signatures, taken|
        assert_equal taken, wrong(VECTOR.merge("signature" => signatures)).nil?, signatures
      end
  end

  it "during a change of secrets both are valid" do
    both = Signature.new(SIGNED.first(2).map { |one| one["secret"] })
    SIGNED.first(2).each do |one|
      assert_nil both.wrong(*one.values_at("id"), one["timestamp"].to_s, one["signature"], one["body"],
        now: one["timestamp"])
    end
    ["", "whsec_", "whsec_???", "whsec_#{["x" * 23].pack("m0")}", ["x" * 65].pack("m0"), nil].each do |secret|
      error = assert_raises(Ringwell::ConfigError) { Signature.new(secret.nil? ? [] : secret) }
      refute_includes error.message, "???"
    end
  end

  it "an event reaches the handlers of its type and of all types, once" do
    seen = []
    hooks = endpoint do |on|
      on.on("call.completed", "call.updated") { |event| seen << [event.id, event.data["id"], event.timestamp.year] }
      on.on { |event| seen << event.type }
    end
    assert_equal [204, 204], Array.new(2) { post(hooks, "msg_1", event("call.completed"))[0] }
    assert_equal [["msg_1", 7, 2026], "call.completed"], seen
    assert_equal 204, post(hooks, "msg_2", event("pool.exhausted"))[0]
    assert_equal "pool.exhausted", seen.last
    assert_equal 204, post(endpoint, "msg_3", event("call.completed"))[0]
  end

  it "a handler is a block" do
    assert_raises(ArgumentError) { endpoint.on("call.completed") }
  end

  it "an event whose handler fails is delivered again, and an unwanted one is answered with 410" do
    calls = 0
    hooks = endpoint { |on| on.on { (calls += 1) == 1 ? raise("oh") : nil } }
    assert_raises(RuntimeError) { post(hooks, "msg_1", event("call.completed")) }
    assert_equal [204, 2], [post(hooks, "msg_1", event("call.completed"))[0], calls]
    gone = endpoint { |on| on.on { raise Webhooks::Gone } }
    assert_equal 410, post(gone, "msg_1", event("call.completed"))[0]
  end

  it "requests that are not events get an answer" do
    hooks = endpoint
    {"{" => 400, "[]" => 400, '{"type":3,"timestamp":"2026-11-22T08:00:00Z"}' => 400,
      '{"type":"a","timestamp":"soon"}' => 400, '{"type":"a","timestamp":"2026-11-22T08:00:00Z","data":3}' => 400,
      '{"type":"a","timestamp":"2026-11-22T08:00:00Z","new":1}' => 204, "\xFF" => 400, "" => 400,
      "x" * 262_145 => 413}.each { |body, status|
      assert_equal status, post(hooks, "msg_#{body.hash}", body)[0],
        body[0, 60]
    }
    env = request("msg_1", event("call.completed"))
    assert_equal [405, "POST"], hooks.call(env.merge("REQUEST_METHOD" => "GET")).then { |one|
                                  [one[0], one[1]["allow"]]
                                }
    %w[ID TIMESTAMP SIGNATURE].each { |name| assert_equal 400, hooks.call(env.except("HTTP_WEBHOOK_#{name}"))[0] }
    assert_equal 401, hooks.call(env.merge("HTTP_WEBHOOK_ID" => "msg_2"))[0]
    assert_equal 401, hooks.call(env.except("rack.input"))[0]
    env["rack.input"].read
    assert_equal 204, hooks.call(env)[0], "already read by a middleware"
  end

  it "it keeps the rules of Rack" do
    require "rack"
    env = Rack::MockRequest.env_for("/", method: "POST", input: event("call.completed"),
                                         **request("msg_1", event("call.completed")).except("rack.input"))
    status, _, body = Rack::Lint.new(endpoint).call(env)
    body.each { |part| assert_instance_of String, part }
    assert_equal 204, status
  end

  it "ids are kept in a process, or in a shared store, within a limit" do
    seen = Webhooks::Seen.new(most: 2)
    assert_equal [true, false, true, true, true], %w[a a b c a].map { |id| seen.add?(id) }
    seen.delete("a")
    assert seen.add?("a")
    begin
      require "active_support"
      require "active_support/cache"
    rescue LoadError
      skip "ActiveSupport is not installed"
    end
    shared = Webhooks::CacheSeen.new(ActiveSupport::Cache::MemoryStore.new)
    assert_equal [true, false], %w[a a].map { |id| shared.add?(id) ? true : false }
    shared.delete("a")
    assert shared.add?("a")
  end

  it "an event is a value" do
    one = Webhooks::Event.read("msg_1", event("call.completed"))
    assert_equal one, Webhooks::Event.read("msg_1", event("call.completed"))
    assert_predicate one.data.dig("pool", "name"), :frozen?
    assert_equal [1, 2], one.data["list"]
  end

  private

  NOW = 1_795_334_400
  SECRET = VECTOR["secret"]

  def endpoint(&block) = Webhooks.new(SECRET, clock: -> { NOW }, &block)

  def event(type)
    JSON.generate("type" => type, "timestamp" => "2026-11-22T08:00:00.123Z",
      "data" => {"id" => 7, "pool" => {"name" => "autos"}, "list" => [1, 2]})
  end

  def request(id, body)
    {"REQUEST_METHOD" => "POST", "rack.input" => StringIO.new(body), "HTTP_WEBHOOK_ID" => id,
      "HTTP_WEBHOOK_TIMESTAMP" => NOW.to_s, "HTTP_WEBHOOK_SIGNATURE" => Signature.sign(SECRET, id, NOW, body)}
  end

  def post(hooks, id, body) = hooks.call(request(id, body))

  def wrong(request, now: request["timestamp"])
    Signature.new(request["secret"]).wrong(request["id"], request["timestamp"].to_s, request["signature"],
      request["body"], now:)
  end

  def check(message, got) = message ? assert_match(message, got) : assert_nil(got)
end
