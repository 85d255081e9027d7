# frozen_string_literal: true

# Callers' mistakes: each gets a clear error, and none is stored.
class OptionsTest < RingwellTest
  def setup
    super
    @fake = Ringwell::Fake.new.pool(1, key: KEY, numbers: %w[8885550101 8885550102])
  end

  it "an unknown option is refused, not stored as a parameter" do
    error = assert_raises(ArgumentError) { @fake.allocate(1, key: KEY, overlow: "8005550100") }
    assert_match(/unknown keyword: :overlow/, error.message)
    assert_raises(ArgumentError) { @fake.bulk { |b| b.allocate(1, key: KEY, requestid: 3) } }
    assert_empty @fake.history
  end

  it "parameters may have any name except those that the API reads itself" do
    names = %i[key request_id overflow visitor deadline params pool]
    @fake.allocate(1, key: KEY, params: names.to_h { |name| [name, "mine"] })
    assert_equal names.map(&:name), @fake.history[0][:params].keys
    %w[ring_pool_key ringwell_visitor].each do |name|
      error = assert_raises(ArgumentError) { @fake.allocate(1, key: KEY, params: {name => "x"}) }
      assert_match(/#{name} cannot be a parameter/, error.message)
    end
    error = assert_raises(ArgumentError) { @fake.allocate(1, key: KEY, params: "m1=autos") }
    assert_match(/params must be a hash/, error.message)
  end

  it "the signatures list the options" do
    wanted = %i[key params request_id overflow visitor]
    {Ringwell::Allocator => [*wanted, :deadline], Ringwell::Batch::Builder => wanted}
      .each do |type, options|
        parameters = type.instance_method(:allocate).parameters
        assert_equal [%i[req pool], *options.map { |name| [:key, name] }], parameters
      end
  end

  it "bulk without rows, body or block names the missing argument" do
    error = assert_raises(ArgumentError) { @fake.bulk }
    assert_equal "bulk needs a block, an array of requests, or the body of a batch", error.message
    [{a: 1}, 3, [1], ["{}"]].each do |rows|
      error = assert_raises(ArgumentError) { @fake.bulk(rows) }
      assert_match(/\Abulk needs/, error.message)
    end
  end

  it "an answer with two lengths, or a length and chunks, is refused" do
    {"content-length: 2\r\ncontent-length: 3" => "{}!", "content-length: 2, 3" => "{}!",
      "content-length: 2\r\ntransfer-encoding: chunked" => "2\r\n{}\r\n0\r\n\r\n"}
      .each do |headers, body|
        served = stub_server { "HTTP/1.1 200 OK\r\n#{headers}\r\n\r\n#{body}" }
        one = client(served.url, deadline: 5)
        assert_raises(Ringwell::ProtocolError, headers) { one.bulk("{}") }
        assert_equal 0, one.connections[:idle]
      end
    served = stub_server { "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\n{}" }
    assert_equal "{}", client(served.url, deadline: 5).bulk("{}")
  end

  it "a source reports whether it can answer" do
    assert_predicate @fake, :ready?
    @fake.refuse!
    refute_predicate @fake, :ready?
    @fake.recover!
    @fake.fail!
    refute_predicate @fake, :ready?
    one = client([nobody, server(Server.pool(1, key: KEY, numbers: %w[8885550101])).url], deadline: 5)
    # A server listens before it is ready for traffic.
    200.times { one.ready? ? break : sleep(0.01) }
    assert_predicate one, :ready?
    refute_predicate client(nobody), :ready?
    busy = stub_server { StubServer.answer("{}", status: "503 Draining") }
    refute_predicate client(busy.url, deadline: 5), :ready?
    engine = opened(durability: :memory, ring_pools: [{id: 1, key: KEY, numbers: %w[8885550101]}])
    assert_predicate engine, :ready?
    engine.stub(:status, -> { raise Ringwell::Panicked, "oh" }) { refute_predicate engine, :ready? }
    engine.close
    refute_predicate engine, :ready?
  end

  it "status asks its backend, and HEAD gets no body" do
    app = Ringwell::Rack::App.new(@fake)
    %w[/status /readyz].each do |path|
      assert_equal [200, '{"status":"up"}'], status(app, path).values_at(0, 2)
      head = status(app, path, "HEAD")
      assert_equal [200, "15", ""], [head[0], head[1]["content-length"], head[2]]
    end
    assert_equal 405, status(app, "/status", "POST")[0]
    @fake.refuse!
    assert_equal 503, status(app, "/status")[0]
    bulk = status(app, "/api/2013-07-01/bulk.json", "HEAD")
    assert_equal [405, "POST, OPTIONS", ""], [bulk[0], bulk[1]["allow"], bulk[2]]
    # A backend without a readiness check counts as up.
    assert_equal 200, status(Ringwell::Rack::App.new(Object.new), "/status")[0]
  end

  it "a body that is not as long as announced is refused" do
    app = Ringwell::Rack::App.new(@fake)
    {"5" => 400, "x" => 400, "1" => 400, "2" => 403, "" => 403, nil => 403}
      .each do |length, wanted|
        got, _, body = app.call("REQUEST_METHOD" => "POST", "CONTENT_LENGTH" => length,
          "PATH_INFO" => "/api/2013-07-01/bulk.json",
          "rack.input" => StringIO.new("{}"))
        assert_equal wanted, got, body.join
      end
  end

  it "a dropped engine is freed" do
    pool = {id: 1, key: KEY, numbers: %w[8885550101]}
    Dir.mktmpdir do |data|
      # A thread has its own stack, so no reference to the engine remains on this one.
      Thread.new { Ringwell::Engine.open(data:, durability: :os, ring_pools: [pool]).ready? }.join
      reopened = nil
      20.times do
        GC.start
        break if (reopened = Ringwell::Engine.open(data:, durability: :os, ring_pools: [pool]))
      rescue Ringwell::EngineError
        sleep 0.01
      end
      assert reopened, "its data stayed locked"
      reopened.close
    end
  end

  it "a dropped engine that cannot be closed is released silently" do
    library = Struct.new(:asked) { def ask(*) = (self.asked = true) && raise(Ringwell::Forked, "fork") }.new
    assert_nil Ringwell::Engine.send(:closing, library, 1).call
    assert library.asked
  end

  it "a hundred engines can be opened one after another and dropped" do
    pool = {id: 1, key: KEY, numbers: %w[8885550101]}
    100.times { Ringwell::Engine.open(durability: :memory, ring_pools: [pool]) }
  end

  private

  def status(app, path, method = "GET")
    status, headers, body = app.call("REQUEST_METHOD" => method, "PATH_INFO" => path)
    [status, headers, body.join]
  end
end
