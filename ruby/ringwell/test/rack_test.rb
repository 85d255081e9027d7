# frozen_string_literal: true

require "stringio"
require "timeout"
require "net/http"

# The Rack application and middleware: behaviour beyond the cases of fixtures/api.
class RackTest < RingwellTest
  BULK = "/api/2013-07-01/bulk.json"
  ROW = %({"requests":[{"api_suffix":"1/allocate_number.json?ring_pool_key=#{KEY}&m1=a"}]})
  JSON_TYPE = {"content-type" => "application/json"}.freeze
  SINGLE = "/api/2013-07-01/ring_pools/1/allocate_number"

  def setup
    super
    @fake = Ringwell::Fake.new(deadline: 1)
    @fake.pool(1, key: KEY, numbers: %w[8885550101 8885550102 8885550103], overflow: "8885550199")
    @fake.pool(2, key: KEY, numbers: [])
    @app = Ringwell::Rack::App.new(@fake)
  end

  it "a batch is answered with the backend's bytes" do
    status, headers, body = post(ROW)
    assert_equal 200, status
    assert_equal @fake.class.new.pool(1, key: KEY, numbers: %w[8885550101]).bulk(ROW), body
    assert_equal "no-store", headers["cache-control"]
    assert_equal body.bytesize.to_s, headers["content-length"]
    assert_match(/\A\d+\z/, headers["processing-time"])
    assert_match(/\Atotal;dur=\d+\.\d{3}\z/, headers["server-timing"])
  end

  it "it keeps the rules of Rack" do
    require "rack"
    linted = ::Rack::Lint.new(@app)
    [[BULK, "POST", ROW], ["#{SINGLE}.xml?ring_pool_key=#{KEY}", "GET", ""], ["/", "GET", ""], [BULK, "OPTIONS", ""],
      ["#{SINGLE}.csv", "HEAD", ""], ["/status", "HEAD", ""], [BULK, "HEAD", ""]]
      .each do |path, method, body|
        env = ::Rack::MockRequest.env_for(path, method: method, input: body)
        status, headers, parts = linted.call(env)
        parts.each { |part| assert_instance_of String, part }
        parts.close
        # Rack 3 accepts only lower-case names.
        assert_equal headers.keys.map(&:downcase), headers.keys
        assert_kind_of Integer, status
      end
  end

  it "a request without a body has none, as in Rack 3" do
    status, _, body = call("REQUEST_METHOD" => "POST", "PATH_INFO" => BULK)
    assert_equal [400, '{"errors":{"invalid_data":"the body is not JSON","class":"InvalidInput"}}'],
      [status, body]
  end

  it "a body that is too long is refused unread, or as soon as its length is known" do
    input = StringIO.new("x" * 1_100_000)
    [{"CONTENT_LENGTH" => "1100000"}, {}].each do |length|
      status, headers, = call("REQUEST_METHOD" => "POST", "PATH_INFO" => BULK,
        "rack.input" => input, **length)
      assert_equal [413, "close"], [status, headers["connection"]]
    end
    assert_equal 1_048_577, input.pos
  end

  # Rack 3 reads forms like this, and `curl -d` sends forms.
  it "a body that another middleware has read is read again, or reported as lost" do
    reader = ->(env) { env["rack.input"].read && @app.call(env) }
    length = {"CONTENT_LENGTH" => ROW.bytesize.to_s,
               "CONTENT_TYPE" => "application/x-www-form-urlencoded"}
    env = bulk_env.merge(length)
    assert_equal 200, reader.call(env)[0]
    once = Struct.new(:io) { def read(*count) = io.read(*count) }
    status, _, body = reader.call(env.merge("rack.input" => once.new(StringIO.new(ROW))))
    assert_equal 400, status
    assert_match(/0 of #{ROW.bytesize} bytes: it was cut short, or a middleware/, body.join)
  end

  it "it works below another path" do
    status, = call("REQUEST_METHOD" => "POST", "SCRIPT_NAME" => "/api/2013-07-01",
      "PATH_INFO" => "/bulk.json", "rack.input" => StringIO.new(ROW))
    assert_equal 200, status
  end

  it "a single allocation comes in three formats" do
    assert_equal [200, '{"promo_number_formatted":"888-555-0101","tracking_url":"",' \
                       '"promo_number":"8885550101"}'],
      get("#{SINGLE}.json", "ring_pool_key=#{KEY}").values_at(0, 2)
    assert_includes get("#{SINGLE}.xml", "ring_pool_key=#{KEY}")[2],
      "<PromoNumber>8885550102</PromoNumber>"
    assert_includes get("#{SINGLE}.csv", "ring_pool_key=#{KEY}")[2], "\n888-555-0103,8885550103,\n"
    assert_includes get("#{SINGLE}.csv", "ring_pool_key=#{KEY}")[2], "8885550199"
  end

  it "a tracker's address is escaped as its format wants" do
    row = {"promo_number_formatted" => "f", "promo_number" => "n",
            "tracking_url" => %(http://a/"b",<c>&\u0001)}
    answers = %w[csv xml].map do |format|
      Ringwell::Rack::Answer.single(row, format).to_a(0)[2].join
    end
    assert_includes answers[0], %("http://a/""b"",<c>&\u0001")
    assert_includes answers[1], %(http://a/"b",&lt;c&gt;&amp;\ufffd</TrackingUrl>)
  end

  it "a single allocation without a number says when to ask again" do
    @fake.pool(2, key: KEY, numbers: %w[8885550201])
    path = SINGLE.sub("/1/", "/2/")
    get("#{path}.json", "ring_pool_key=#{KEY}")
    status, headers, body = get("#{path}.json", "ring_pool_key=#{KEY}")
    assert_equal [503, "1800"], [status, headers["retry-after"]]
    assert_match(/\APoolExhausted: /, body)
    answer = Ringwell::Rack::Answer.failed("ServiceUnavailable", "ask again in a second", "json")
    assert_equal "1", answer.to_a(0)[1]["retry-after"]
  end

  it "bytes that are not UTF-8 reach the backend escaped" do
    get("#{SINGLE}.json", "ring_pool_key=#{KEY}&m1=\xFFa\"".b)
    assert_equal "\xFFa\"", @fake.history.last[:params]["m1"]
  end

  it "a path that is too long is refused" do
    assert_equal 414, get("#{SINGLE}.json", "m1=#{"x" * 8192}")[0]
  end

  it "the client's deadline reaches the backend, but never a later one" do
    @fake.late!(0.5)
    assert_equal 503, post(ROW, "HTTP_RINGWELL_DEADLINE_MS" => "100")[0]
    assert_equal 503, post(ROW, "HTTP_RINGWELL_DEADLINE_MS" => "0")[0]
    @fake.late!(1.5)
    assert_equal 503, post(ROW, "HTTP_RINGWELL_DEADLINE_MS" => "90000")[0]
    @fake.recover!
    assert_equal 200, post(ROW, "HTTP_RINGWELL_DEADLINE_MS" => "soon")[0]
    twice = 2.times.map { post(ROW, "HTTP_IDEMPOTENCY_KEY" => "a")[2] }
    assert_equal twice[0], twice[1]
    refute_equal twice[0], post(ROW, "HTTP_IDEMPOTENCY_KEY" => "")[2]
  end

  it "a backend without a deadline of its own uses the client's" do
    asked = nil
    backend = Object.new
    backend.define_singleton_method(:deadline) { nil }
    backend.define_singleton_method(:bulk) { |body, deadline: 9| (asked = deadline) && body }
    Ringwell::Rack::App.new(backend).call("REQUEST_METHOD" => "POST", "PATH_INFO" => BULK,
      "rack.input" => StringIO.new("b"),
      "HTTP_RINGWELL_DEADLINE_MS" => "50")
    assert_in_delta 0.05, asked
  end

  it "a backend that cannot answer is 503, and one that refuses sets the answer" do
    @fake.refuse!
    status, headers, body = post(ROW)
    assert_equal [503, "1"], [status, headers["retry-after"]]
    assert_includes body, '"class":"ServiceUnavailable"'
    @fake.recover!
    [[503, "1"], [403, nil]].each do |wanted, again|
      @fake.fail!(wanted)
      status, headers, = post(ROW)
      assert_equal [wanted, again], [status, headers["retry-after"]]
    end
  end

  deep = ->(depth) { deep.call(depth + 1) }
  {"StandardError" => -> { raise "oh" },
    "NotImplementedError" => -> { raise NotImplementedError, "oh" },
    "deep recursion" => -> { deep.call(0) }, "a timeout" => -> { raise Timeout::Error, "oh" },
    "one without backtrace" => -> { raise RuntimeError.new("oh").freeze }}.each do |name, trouble|
    it "#{name} in the backend is a 500, logged once, and the next request succeeds" do
      fake = @fake
      backend = Object.new
      backend.define_singleton_method(:bulk) { |body| trouble ? trouble.call : fake.bulk(body) }
      app = Ringwell::Rack::App.new(backend)
      log = StringIO.new
      status, _, body = app.call(env = bulk_env.merge("rack.errors" => log))
      handle = body.join[/"refer to error handle (\d+)"/, 1]
      assert_equal [500, 1], [status, log.string.scan("error handle #{handle}").size]
      assert_equal 1, log.string.lines.size
      assert_equal 500, app.call(bulk_env)[0], "without a log"
      trouble = nil
      assert_equal 200, app.call(env.merge(bulk_env))[0]
    end
  end

  it "exceptions that must end the process do" do
    [SystemExit, Interrupt, NoMemoryError].each do |kind|
      backend = Object.new
      backend.define_singleton_method(:bulk) { |_| raise kind, "end" }
      assert_raises(kind) { Ringwell::Rack::App.new(backend).call(bulk_env) }
    end
  end

  it "status is 200 until it is drained" do
    assert_equal [200, '{"status":"up"}'], get("/status").values_at(0, 2)
    @app.drain!
    assert_equal 503, get("/status")[0]
    assert_equal 200, post(ROW)[0]
  end

  it "the middleware answers its own paths and passes on the rest unchanged" do
    rest = ->(env) { [200, {}, [env.fetch("PATH_INFO")]] }
    stack = Ringwell::Rack::Middleware.new(rest, @fake)
    ["/", "/status", "/api/", "/api/mine", "/api/2013-07-01/ring_pools/1.json"].each do |path|
      assert_equal [path], stack.call("PATH_INFO" => path, "REQUEST_METHOD" => "GET")[2]
    end
    assert_equal 200, stack.call(bulk_env)[0]
    assert_equal 404, stack.call("PATH_INFO" => "#{SINGLE}.yaml", "REQUEST_METHOD" => "GET")[0]
  end

  it "100 requests that wait 180 ms each, 30 at a time in Puma, take at most 1.2 s" do
    slow = client(slow_server(0.18).url, deadline: 5, connections: 30)
    in_puma(Ringwell::Rack::App.new(slow), threads: 30) do |port|
      assert_takes(0.72..1.2) do
        waiting = Thread::Queue.new((1..100).to_a).close
        statuses = 30.times.map { Thread.new { ask_all(port, waiting) } }.flat_map(&:value)
        assert_equal [["200"], 100], [statuses.uniq, statuses.size]
      end
    end
  end

  it "it works in Thin as elsewhere" do
    require "thin"
    port = Server.free_port
    Thin::Logging.silent = true
    thin = Thin::Server.new("127.0.0.1", port, @app, signals: false)
    running = Thread.new { thin.start }
    sleep 0.01 until thin.running?
    answer = Net::HTTP.post(URI("http://127.0.0.1:#{port}#{BULK}"), ROW, JSON_TYPE)
    assert_equal "200", answer.code
    assert_includes answer.body, "8885550101"
  rescue LoadError
    skip "Thin is not installed"
  ensure
    thin&.stop!
    running&.join
  end

  private

  def bulk_env
    {"REQUEST_METHOD" => "POST", "PATH_INFO" => BULK, "rack.input" => StringIO.new(ROW)}
  end

  def call(env)
    status, headers, body = @app.call(env)
    [status, headers, body.join]
  end

  def post(body, **more)
    call({"REQUEST_METHOD" => "POST", "PATH_INFO" => BULK,
           "rack.input" => StringIO.new(body)}.merge(more))
  end

  def get(path, query = "")
    call("REQUEST_METHOD" => "GET", "PATH_INFO" => path, "QUERY_STRING" => query)
  end

  def ask_all(port, waiting)
    Net::HTTP.start("127.0.0.1", port) do |http|
      statuses = []
      statuses << http.post(BULK, ROW, JSON_TYPE).code while waiting.pop
      statuses
    end
  end

  def in_puma(app, threads:)
    require "puma"
    puma = Puma::Server.new(app, Quiet.puma, min_threads: threads, max_threads: threads, **Quiet.puma_options)
    listener = puma.add_tcp_listener("127.0.0.1", 0)
    puma.run
    yield listener.addr[1]
  rescue LoadError
    skip "Puma is not installed"
  ensure
    puma&.stop(true)
  end
end
