# frozen_string_literal: true

# The client's guarantees, each tested in plain threads and in fibers of every scheduler.
class ClientTest < RingwellTest
  OVERFLOW = {"42" => "8005550100"}.freeze

  in_every_mode "40 calls of 50 ms over 8 connections take the time of 5" do |mode|
    slow = slow_server(0.05)
    one = client(slow.url, connections: 8, deadline: 5)
    results = nil
    assert_takes(0.25..0.3) { results = Modes.run(mode, 40) { ask(one) } }
    assert_equal ["8885550000"], results.map(&:number).uniq
    assert_equal [8, {idle: 8, taken: 0}], [slow.connections, one.connections]
  end

  in_every_mode "a deadline of 200 ms is kept without an answer" do |mode|
    one = client(silent, deadline: 0.2)
    assert_late(0.2, mode, 5) { ask(one) }
    assert_equal({idle: 0, taken: 0}, one.connections)
  end

  in_every_mode "a deadline is kept while all connections are taken" do |mode|
    one = client(silent, deadline: 0.1, connections: 1)
    assert_late(0.1, mode, 5) { ask(one) }
  end

  in_every_mode "a deadline is kept while the server takes no connection" do |mode|
    one = client(full, deadline: 0.1)
    assert_late(0.1, mode, 3) { ask(one) }
  end

  in_every_mode "a deadline is kept while the server does not read" do |mode|
    Dir.mktmpdir do |files|
      # Unix sockets are used because their buffers are small.
      @to_close << UNIXServer.new("#{files}/s")
      one = client("unix:#{files}/s", deadline: 0.1)
      body = "x" * 1_000_000
      assert_late(0.1, mode, 1) { one.bulk(body) }
    end
  end

  in_every_mode "other calls continue while one waits" do |mode|
    one = client(silent, deadline: 0.1)
    ticks = 0
    Modes.run(mode, 2) do |index|
      next (ask(one) rescue nil) if index.zero?

      7.times { sleep(0.01) && ticks += 1 }
    end
    assert_equal 7, ticks
  end

  in_every_mode "a released slot goes to the next waiting call" do |mode|
    one = client(slow_server(0.01).url, deadline: 5, connections: 2)
    assert_equal 20, Modes.run(mode, 20) { ask(one) }.grep(Ringwell::Allocation).size
    assert_operator one.connections[:idle], :<=, 2
  end

  in_every_mode "each call gets its own answer, even beside abandoned calls" do |mode|
    served = stub_server do |request|
      sleep(rand < 0.2 ? 0.1 : 0.002)
      numbers(request)
    end
    one = client(served.url, deadline: 0.05, connections: 4, overflow: OVERFLOW)
    wrong = Modes.run(mode, 10) do |job|
      10.times.count do |call|
        id = "#{job}-#{call}"
        one.allocate("42", key: KEY, request_id: id).request_id != id
      end
    end
    assert_equal [0], wrong.uniq
    assert_operator one.connections[:idle], :<=, 4
  end

  in_every_mode "answers around the size of a read and of a socket's buffer arrive complete" do |mode|
    sizes = [16_384, 65_536, 262_144].flat_map { |size| [size - 1, size, size + 1] }
    served = stub_server { |request| StubServer.answer("x" * Integer(request.body)) }
    one = client(served.url, deadline: 20, connections: 4)
    got = Modes.run(mode, sizes.size) { |index| one.bulk(sizes[index].to_s).bytesize }
    assert_equal sizes, got
    assert_operator served.connections, :<=, 4
  end

  it "an answer to another request is rejected" do
    row = {"request_id" => "other", "promo_number" => "8885550101"}
    served = stub_server { StubServer.answer([row]) }
    one = client(served.url, deadline: 5)
    assert_raises(Ringwell::ProtocolError) { one.allocate("42", key: KEY, request_id: "mine") }
  end

  it "a client survives the schedulers that it was used under" do
    served = stub_server { |request| numbers(request) }
    one = client(served.url, deadline: 5, connections: 1)
    [*Modes::ALL, *Modes::ALL].each do |mode|
      assert_equal [:allocated], Modes.run(mode, 1) { ask(one) }.map(&:reason)
    end
    assert_equal 1, served.connections
  end

  in_every_mode "unix sockets work like TCP" do |mode|
    Dir.mktmpdir do |files|
      served = stub_server(path: "#{files}/s") { |request| numbers(request) }
      one = client("unix:#{files}/s", deadline: 5)
      assert_equal 10, Modes.run(mode, 10) { ask(one) }.grep(Ringwell::Allocation).size
      assert_operator served.connections, :<=, 10
    end
  end

  it "threads and fibers share one client" do
    one = client(slow_server(0.01).url, deadline: 5, connections: 3)
    jobs = Modes::ALL.map { |mode| Thread.new { Modes.run(mode, 10) { ask(one) } } }
    assert_equal 10 * Modes::ALL.size, jobs.flat_map(&:value).grep(Ringwell::Allocation).size
  end

  it "without an answer in time, the overflow number is returned" do
    late = ask(client(silent, deadline: 0.05, overflow: OVERFLOW))
    assert_equal ["8005550100", :late, true], [late.number, late.reason, late.overflow?]
  end

  it "without a server, the overflow number is returned" do
    assert_equal :unreachable, ask(client(nobody, overflow: OVERFLOW)).reason
    assert_equal :unreachable, ask(client("unix:/nowhere", overflow: OVERFLOW)).reason
  end

  it "if a server fails or sends an invalid answer, the overflow number is returned" do
    ["HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n", "SSH-2.0\r\n\r\n", StubServer.answer("[]"),
      StubServer.answer([]), StubServer.answer([3]), StubServer.answer("{"),
      StubServer.answer([{"promo_number" => "12"}])].each do |reply|
      failing = stub_server { reply }
      assert_equal :failed, ask(client(failing.url, deadline: 5, overflow: OVERFLOW)).reason, reply
    end
  end

  it "the overflow number comes from the call, the client, its pools, or an earlier answer" do
    one = client(nobody, pools: [Ringwell::Pool.new(id: 1, key: KEY, overflow: "8005550101")],
      overflow: OVERFLOW)
    assert_equal "8005550101", one.allocate(1).number
    assert_equal "8005550102", one.allocate(2, key: KEY, overflow: "8005550102").number
    assert_equal "8005550103", one.allocate(42, key: KEY, overflow: "8005550103").number
    assert_equal "8005550100", ask(one).number
    assert_raises(Ringwell::ConfigError) { client(nobody, overflow: {"1" => "12"}) }
  end

  it "without a known overflow number the error is raised" do
    assert_raises(Ringwell::ConnectError) { ask(client(nobody)) }
    error = assert_raises(Ringwell::ServerError) do
      ask(client(stub_server { StubServer.answer("oh", status: "503 Busy") }.url))
    end
    assert_equal [503, true, "oh"], [error.status, error.retryable?, error.body]
  end

  it "a batch without an answer has an outcome for each row" do
    one = client(nobody, overflow: OVERFLOW)
    batch = one.bulk { |b| b.allocate(42, key: KEY, request_id: 1).allocate(7, key: KEY) }
    assert_equal [:unreachable, 1], [batch[0].reason, batch[0].request_id]
    assert_instance_of Ringwell::ConnectError, batch[1]
  end

  it "an invalid request is raised even if there is an overflow number" do
    wrong = stub_server { StubServer.answer("{}", status: "403 Forbidden") }
    assert_raises(Ringwell::ServerError) { ask(client(wrong.url, deadline: 5, overflow: OVERFLOW)) }
  end

  it "the server gets the client's deadline, slightly shortened" do
    served = stub_server { |request| numbers(request) }
    ask(client(served.url, deadline: 2))
    milliseconds = served.requests[0].head[/ringwell-deadline-ms: (\d+)/, 1].to_i
    assert_includes 1500..1990, milliseconds
    client(served.url).allocate(42, key: KEY, deadline: 0.4)
    assert_includes 200..391, served.requests[1].head[/ringwell-deadline-ms: (\d+)/, 1].to_i
  end

  it "a request is one write, so that small answers do not wait for each other" do
    Dir.mktmpdir do |files|
      listener = UNIXServer.new("#{files}/s")
      @to_close << listener
      first = Thread.new { listener.accept.recv(65_536) }
      ask(client("unix:#{files}/s", deadline: 0.05, overflow: OVERFLOW))
      assert_match(/\r\n\r\n{"requests":.*}\z/m, first.value)
    end
  end

  it "two clients with different keys live side by side" do
    one, two = %w[key-of-one key-of-two].map do |key|
      fake = Ringwell::Fake.new(pools: [Ringwell::Pool.new(id: 1, key: key)])
      fake.pool(1, key: key, numbers: %w[8885550101])
    end
    [one, two].map { |source| Thread.new { source.allocate(1).number } }
      .each { |thread| assert_equal "8885550101", thread.value }
  end

  it "the default instance is set by hand; without it there is a clear error" do
    error = assert_raises(Ringwell::ConfigError) { Ringwell.client }
    assert_match(/Ringwell.client is not set/, error.message)
    Ringwell.client = one = Ringwell::Fake.new
    assert_same one, Ringwell.client
  ensure
    Ringwell.client = nil
  end

  {
    [[], {}] => /needs an endpoint/, ["ftp://x", {}] => /neither http/,
    ["unix:", {}] => /has no path to a socket/,
    ["http://a:0", {}] => /no such port/, ["http://a:70000", {}] => /no such port/,
    ["https://a", {}] => /for TLS/, ["http://a/b", {}] => /neither/,
    ["unix:s", {deadline: 0}] => /deadline must be seconds/,
    ["unix:s", {idle: nil}] => /idle must be seconds/,
    ["unix:s", {connections: 0}] => /connections must be/,
    ["unix:s", {connections: 1.5}] => /connections must be/
  }.each do |(endpoints, options), message|
    it "a client is refused: #{endpoints} #{options}" do
      error = assert_raises(Ringwell::ConfigError) { client(endpoints, **options) }
      assert_match message, error.message
    end
  end

  it "a deadline that is not a time is refused" do
    ["1", 0, -1].each do |deadline|
      assert_raises(ArgumentError) { client(nobody).allocate(1, key: KEY, deadline: deadline) }
    end
  end

  it "a call in EventMachine's reactor is refused unless it is allowed to block" do
    require "eventmachine"
    served = stub_server { |request| numbers(request) }
    seen = []
    EventMachine.run do
      seen << (ask(client(served.url, deadline: 5)) rescue $!.class)
      seen << ask(client(served.url, deadline: 5, allow_blocking: true)).reason
      Thread.new { seen << ask(client(served.url, deadline: 5)).reason }.join
      EventMachine.stop
    end
    assert_equal [Ringwell::ConfigError, :allocated, :allocated], seen
    assert_equal :allocated, ask(client(served.url, deadline: 5)).reason
  rescue LoadError
    skip "EventMachine is not installed"
  end

  it "the gem is light: few own files, no part of ActiveSupport" do
    lib = File.expand_path("../lib", __dir__)
    script = 'require "ringwell"; puts $LOADED_FEATURES.grep(/ringwell/).size, ' \
             "defined?(ActiveSupport).inspect, " \
             "defined?(Ringwell::Fake).inspect, defined?(OpenSSL).inspect"
    files, *others = IO.popen(
      [RbConfig.ruby, "-I", lib, "-W:no-experimental", "-e", script], &:readlines
    )
    assert_operator files.to_i, :<, 25
    assert_equal %W[nil\n nil\n nil\n], others
  end

  private

  def ask(one) = one.allocate("42", key: KEY, params: {m1: "autos"})

  def numbers(request) = StubServer.answer(StubServer.rows(request.body))

  # Expects this many simultaneous calls to fail after this many seconds, not earlier and not much
  # later.
  def assert_late(seconds, mode, count, &block)
    assert_takes(seconds..seconds + 0.05) do
      outcomes = Modes.run(mode, count) { assert_late_call(seconds, &block) }
      assert_equal [:late], outcomes.uniq
    end
  end

  def assert_late_call(seconds)
    started = Ringwell::Deadline.now
    yield
  rescue Ringwell::DeadlineExceeded
    Ringwell::Deadline.now - started >= seconds ? :late : :too_soon
  end
end
