# frozen_string_literal: true

require "open3"

# The engine in this process: behaviour beyond the contract and the cases of fixtures/api.
class EngineTest < RingwellTest
  Library = Ringwell::Engine::Library
  POOL = {id: 1, key: KEY, numbers: ["8885550101-8885550189"], overflow: "8885550199"}.freeze

  def setup
    super
    @files = Dir.mktmpdir("ringwell")
  end

  def teardown
    super
    FileUtils.rm_rf(@files)
  end

  it "a block closes it afterwards, and closing it twice is harmless" do
    kept = nil
    number = Ringwell::Engine.open(durability: :memory, ring_pools: [POOL]) do |engine|
      kept = engine
      assert_match(%r{\A#<Ringwell::Engine /.*ringwell_embed\.[a-z]+>\z}, engine.inspect)
      engine.allocate(1, key: KEY, deadline: 0.05).number
    end
    assert_equal "8885550101", number
    assert_predicate kept, :closed?
    assert_nil kept.close
    assert_match(/\A#<Ringwell::Engine .* closed>\z/, kept.inspect)
    assert_match(/is closed/, assert_raises(Ringwell::EngineError) { ask(kept) }.message)
  end

  it "the server's code does its work, and it reports itself" do
    engine = opened(durability: :memory, ring_pools: [POOL], deadline: 0.5)
    assert_in_delta 0.5, engine.deadline
    ask(engine)
    assert_equal [1, "memory", "writing", 89], engine.status.values_at("rows", "durability",
      "journal", "numbers")
    assert_same engine, engine.flush
    assert_same engine, engine.snapshot
  end

  it "a server continues after the engine, and the engine after the server" do
    config = settings("disk")
    Ringwell::Engine.open(config:) { |engine| assert_equal "8885550101", ask(engine).number }
    assert_equal "8885550102", from_server(config)
    Ringwell::Engine.open(config:) do |engine|
      assert_equal "8885550103", ask(engine).number
      engine.snapshot
      assert_equal "8885550104", ask(engine).number
    end
    assert_equal "8885550105", from_server(config)
    report, status = Open3.capture2e(Server.program, "journal", "verify", "#{@files}/data")
    assert_predicate status, :success?, report
  end

  it "allocated numbers survive if their process is killed" do
    config = settings("os")
    child = in_child do |out|
      first = Ringwell::Engine.open(config:)
      out.puts ask(first).number, Ringwell::Engine.open(config:).inspect, first
    end
    assert_match(/in use by process/, child)
    killed = in_child do |out|
      engine = Ringwell::Engine.open(config:)
      out.puts(ask(engine).number)
      out.flush
      Process.kill(:KILL, Process.pid)
    end
    assert_equal "8885550102\n", killed
    Ringwell::Engine.open(config:) { |engine| assert_equal "8885550103", ask(engine).number }
  end

  it "another process cannot open data that is in use, and the error names the owner" do
    config = settings("disk")
    opened(config:)
    said = in_child { |out| out.puts Ringwell::Engine.open(config:).inspect }
    assert_match(/EngineError: .*LOCK is in use by process #{Process.pid}: stop that process first/, said)
  end

  it "two forked workers get a clear error, and the parent's engine keeps running" do
    engine = opened(config: settings("disk"))
    ask(engine)
    said = 2.times.map do
      in_child do |out|
        begin
          ask(engine)
        rescue Ringwell::Forked => error
          out.puts error.message
        end
        out.puts [engine.close, engine.closed?].inspect
        # A worker may have its own engine.
        own = Ringwell::Engine.open(durability: :memory, ring_pools: [POOL])
        out.puts ask(own).number
      end
    end
    assert_equal 1, said.uniq.size
    assert_match(/forked child, and the engine belongs to its parent.*\n\[nil, true\]\n8885550101\n\z/,
      said[0])
    assert_equal "8885550102", ask(engine).number
  end

  it "wrong settings are refused with the server's messages" do
    {{ring_pools: [POOL]} => "data must be set",
      {config: "#{@files}/none.toml"} => "none.toml: cannot be read",
      {ring_pools: [POOL.merge(numbers: ["1"])], durability: :os} => "pools[0]: numbers"}
      .each do |options, wanted|
        error = assert_raises(Ringwell::EngineError) { Ringwell::Engine.open(**options) }
        assert_includes error.message, wanted
        refute_includes error.message, KEY
      end
  end

  it "a call without the GVL uses the bytes as they were at its beginning, despite changes by another thread" do
    engine = opened(durability: :memory, ring_pools: [POOL], release_gvl: true)
    body = Ringwell::Request.body([row] * 200)
    whole = body.dup
    changing = Thread.new { loop { body.replace("x" * 10) && body.replace(whole) && Thread.pass } }
    200.times do
      engine.bulk(body)
    rescue Ringwell::ServerError => error
      assert_equal 400, error.status
    end
  ensure
    changing.kill.join
  end

  # If a call releases the GVL while another thread is busy, the call gets it back after that
  # thread's time slice. On a busy machine, that thread may start too late for a short call.
  # Therefore the call is long, and one success in twenty attempts is enough.
  it "a batch keeps the GVL, because it would come back only after a time slice" do
    engines = [false, true].map do |release_gvl|
      opened(durability: :memory, ring_pools: [POOL], release_gvl:)
    end
    body = Ringwell::Request.body([Ringwell::Request.new(pool: 1, key: KEY, params: {m1: "autos" * 60})] * 500)
    busy = Thread.new { loop { nil } }
    held = released = 0
    20.times do
      held, released = engines.map { |engine| calls_within(0.2) { engine.bulk(body) } }
      break if held > 2 * released
    end
    assert_operator held, :>, 2 * released, "#{held} calls held, #{released} released"
    assert_operator released, :>, 0
  ensure
    busy.kill.join
  end

  it "threads and a Rack server share it without allocating a number twice" do
    engine = opened(durability: :memory, ring_pools: [POOL.merge(overflow: nil)])
    numbers = 4.times.map { Thread.new { 20.times.map { ask(engine).number } } }.flat_map(&:value)
    assert_equal 80, numbers.uniq.size
  end

  private

  def row = Ringwell::Request.new(pool: 1, key: KEY, params: {m1: "autos"})

  def ask(engine) = engine.allocate(1, key: KEY, params: {m1: "autos"})

  def settings(durability)
    pool = Server.pool(1, **POOL.slice(:key, :numbers, :overflow))
    file = "#{@files}/ringwell.toml"
    File.write(file, <<~TOML)
      data = "data"
      shards = 1
      durability = "#{durability}"
      deadline = "10s"
      # As small as possible, because the files are filled with zeros first.
      journal.segment_bytes = "1MiB"
      #{pool}
    TOML
    file
  end

  # Returns the next number from a server with this configuration.
  def from_server(config)
    socket = "#{@files}/socket"
    clean = ENV.keys.grep(/\ARINGWELL_/).to_h { |name| [name, nil] }
    pid = Process.spawn(clean, Server.program, "serve", "--config", config, "--listen",
      "unix:#{socket}", %i[out err] => "#{@files}/log")
    sleep 0.005 until listens?(socket) || Process.wait(pid, Process::WNOHANG)
    ask(client("unix:#{socket}", deadline: 10)).number
  ensure
    Process.kill(:TERM, pid)
    Process.wait(pid)
  end

  # The socket's file appears a moment before the server listens.
  def listens?(socket)
    UNIXSocket.new(socket).close
    true
  rescue SystemCallError
    false
  end

  # Returns the output of a forked child, or its error.
  def in_child
    reader, writer = IO.pipe
    pid = fork do
      reader.close
      yield writer
    rescue Ringwell::Error => error
      writer.puts "#{error.class}: #{error.message}"
    ensure
      writer.close
      exit!(true)
    end
    writer.close
    reader.read
  ensure
    Process.wait(pid)
  end

  def calls_within(seconds)
    ends = Ringwell::Deadline.now + seconds
    calls = 0
    while Ringwell::Deadline.now < ends
      yield
      calls += 1
    end
    calls
  end
end

# Runs the tests above with Fiddle, in case they used the shim.
class FiddleEngineTest < EngineTest
  include WithFiddle
end

# The engine in single-process servers.
class EngineServersTest < RingwellTest
  POOL = EngineTest::POOL
  BULK = "/api/2013-07-01/bulk.json"
  ROW = %({"requests":[{"api_suffix":"1/allocate_number.json?ring_pool_key=#{KEY}&m1=a"}]})
  LOADED = <<~RUBY
    $LOAD_PATH.unshift #{File.expand_path("../lib", __dir__).inspect}
    require "ringwell/engine"
    require "ringwell/rack"
    require "stringio"
  RUBY
  APP = "Ringwell::Rack::App.new(Ringwell::Engine.open(durability: :memory, ring_pools: [#{POOL.inspect}]))".freeze

  it "it works in Puma in single mode" do
    require "puma"
    app = Ringwell::Rack::App.new(opened(durability: :memory, ring_pools: [POOL]))
    puma = Puma::Server.new(app, Quiet.puma, min_threads: 4, max_threads: 4, **Quiet.puma_options)
    listener = puma.add_tcp_listener("127.0.0.1", 0)
    puma.run
    assert_equal %w[8885550101 8885550102], 2.times.map { over_http(listener.addr[1]) }
  rescue LoadError
    skip "Puma is not installed"
  ensure
    puma&.stop(true)
  end

  it "it works in Thin, one process, one thread" do
    skip "Thin is not installed" unless system("which thin", out: File::NULL)
    assert_served("thin", "start", "-a", "127.0.0.1", "-p", "%d", "-R")
  end

  # Debian has no package of Falcon; public CI installs the gem.
  it "it works in Falcon, one process, a fiber per request" do
    skip "Falcon is not installed" unless system("which falcon", out: File::NULL)
    assert_served("falcon", "serve", "--count", "1", "--bind", "http://127.0.0.1:%d", "--config")
  end

  it "it works in async-http, the base of Falcon, with a fiber per request" do
    skip "async-http is not installed" if Gem::Specification.find_all_by_name("async-http").empty?
    port = Server.free_port
    served = start([RbConfig.ruby, "-W0", "-e", <<~RUBY, "http://127.0.0.1:#{port}"])
      #{LOADED}
      require "async"
      require "async/http/server"
      require "async/http/endpoint"
      app = #{APP}
      Async do
        Async::HTTP::Server.for(Async::HTTP::Endpoint.parse(ARGV[0])) { |request|
          env = {"REQUEST_METHOD" => request.method, "PATH_INFO" => request.path, "rack.input" => StringIO.new(request.read)}
          status, headers, body = app.call(env)
          Protocol::HTTP::Response[status, headers.to_a, body.to_a]
        }.run
      end
    RUBY
    numbers = Array.new(20) { Thread.new { over_http(port) } }.map(&:value)
    assert_equal (1..20).map { |last| format("88855501%02d", last) }, numbers.sort
  ensure
    stop(served)
  end

  private

  # Starts a program whose arguments include the port and end with a Rack file, and expects numbers
  # from it.
  def assert_served(*command)
    port = Server.free_port
    Tempfile.create(%w[config .ru]) do |rackup|
      rackup.write("#{LOADED}run #{APP}\n")
      rackup.flush
      served = start([*command.map { |word| format(word, port) }, rackup.path])
      assert_equal %w[8885550101 8885550102], 2.times.map { over_http(port) }
    ensure
      stop(served)
    end
  end

  def start(command) = Process.spawn(*command, %i[out err] => File::NULL, :pgroup => true)

  # Ends a server and its child processes.
  def stop(served)
    return unless served

    Process.kill(:KILL, -served)
    Process.wait(served)
  end

  def over_http(port)
    tries = 0
    begin
      answer = Net::HTTP.post(URI("http://127.0.0.1:#{port}#{BULK}"), ROW)
    rescue Errno::ECONNREFUSED
      raise if (tries += 1) > 2000

      sleep 0.005
      retry
    end
    JSON.parse(answer.body).dig("responses", 0, "promo_number")
  end
end
