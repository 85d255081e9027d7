# frozen_string_literal: true

require "net/http"
require "open3"

# The gem in servers that fork and in job workers, as separate processes.
class ProcessesTest < RingwellTest
  include Telephone

  SUPPORT = File.expand_path("support", __dir__)
  LIB = File.expand_path("../lib", __dir__)
  PATIENCE = 20

  it "in Puma's cluster a client works in each worker, an engine only in the process that opened it" do
    skip "Puma is not installed" unless system("which puma", out: File::NULL)
    running = server([42, 43].map { |id| Server.pool(id, key: KEY, numbers: ["888#{id}50000-888#{id}59998"]) }.join)
    in_cluster(running) do |port|
      shown = [42, 43].map { |id| Thread.new { ask_both(port, "/client/#{id}") } }.map(&:value)
      strangers = shown.zip(%w[88842 88843]).map { |all, own| all.reject { |_, said| said.start_with?(own) } }
      assert_equal [[], []], strangers
      numbers = shown.flatten(1).map(&:last)
      assert_equal numbers.size, numbers.uniq.size, "a number was allocated twice: #{shown}"
      ask_both(port, "/parents").each { |_, said| assert_match(/\ARingwell::Forked: .*forked child/, said) }
      others, own = ask_both(port, "/own").partition { |_, said| said.start_with?("Ringwell") }
      assert_equal [1, 1], [others, own].map { |answers| answers.map(&:first).uniq.size }
      others.each { |_, said| assert_match(/in use by process #{own[0][0]}: stop that process first/, said) }
      assert_equal own.size, own.map(&:last).uniq.size

      Process.kill(:KILL, own[0][0].to_i)
      again = wait_until { ask_all(port, "/own").find { |pid, said| pid != own[0][0] && said.start_with?("888") } }
      refute_includes own.map(&:last), again[1]
    end
  end

  it "Sidekiq's threads share a client, and an outcome delivered three times is recorded once" do
    %w[redis-server sidekiq].each do |name|
      skip "#{name} is not installed" unless system("which #{name}", out: File::NULL)
    end
    running = telephone_server("")
    number = client(running.url).allocate("42", key: KEY, params: {m1: "autos"}).number
    report(event: "started", to: "+1#{number}", from: "+14155551234")
    report(event: "ended", status: "answered", talk_seconds: 58)
    call = wait_until { ask(running, "/v1/calls")["calls"].first }.fetch("id")
    with_sidekiq(running, call) do
      recorded = wait_until do
        events = ask(running, "/v1/events?after=0")["events"].select { |one| one["type"] == "conversion.recorded" }
        events unless events.empty?
      end
      numbers = wait_until { (all = redis("lrange", "numbers", "0", "-1").split).size == 40 && all }
      assert_equal 40, numbers.uniq.size
      assert_equal ["0", "0"], [redis("llen", "queue:default").strip, redis("zcard", "retry").strip]
      assert_equal [call], recorded.map { |one| one["data"]["call"]["id"] }
    end
  end

  private

  # @yieldparam port [Integer] the port of a Puma with two workers
  def in_cluster(running)
    port = Server.free_port
    Dir.mktmpdir do |files|
      pool = Server.pool(42, key: KEY, numbers: ["8885550200-8885559998"], overflow: "8885559999")
      File.write("#{files}/ringwell.toml", "data = \"data\"\ndurability = \"os\"\n#{pool}")
      environment = {"RING_POOL_KEY" => KEY, "RING_POOL_SERVER" => running.url,
                      "ENGINE_SETTINGS" => "#{files}/ringwell.toml", "RUBYLIB" => LIB}
      in_group(environment, "puma", "--config", "#{SUPPORT}/cluster.rb", "--bind", "tcp://127.0.0.1:#{port}",
        "#{SUPPORT}/cluster.ru", log: "#{files}/log") do
        # Both workers have started.
        ask_both(port, "/")
        yield port
      end
    end
  end

  # @yield while Sidekiq runs the jobs in sidekiq_jobs.rb
  def with_sidekiq(running, call)
    Dir.mktmpdir do |files|
      @redis = "#{files}/redis"
      environment = {"RING_POOL_KEY" => KEY, "RING_POOL_SERVER" => running.url, "TOKEN" => TOKEN,
                      "CALL" => call.to_s, "RUBYLIB" => LIB, "REDIS_URL" => "unix://#{@redis}"}
      in_group({}, "redis-server", "--port", "0", "--unixsocket", @redis, "--save", "", "--dir", files,
        log: "#{files}/redis.log") do
        wait_until { File.socket?(@redis) }
        in_group(environment, "sidekiq", "--require", "#{SUPPORT}/sidekiq_jobs.rb", "--concurrency", "5",
          log: "#{files}/log") { yield }
      end
    end
  end

  # Runs the program and its child processes during the block.
  def in_group(environment, *command, log:)
    pid = Process.spawn(environment, *command, %i[out err] => log, :pgroup => true)
    yield
  rescue Minitest::Assertion => error
    raise error.class, "#{error.message}\n#{File.read(log)}"
  ensure
    Process.kill(:KILL, -pid)
    Process.wait(pid)
  end

  def redis(*command)
    said, status = Open3.capture2e("redis-cli", "-s", @redis, *command)
    assert_predicate status, :success?, said
    said
  end

  # @return [Array(Array(String, String))] like {#ask_all}, repeated until both workers have
  #   answered
  def ask_both(port, path)
    answers = []
    wait_until { answers.concat(ask_all(port, path)).map(&:first).uniq.size == 2 && answers }
  end

  # @return [Array(Array(String, String))] the worker's process and its answer, for 24 requests at once
  def ask_all(port, path)
    asking = Array.new(24) do
      Thread.new do
        Net::HTTP.get(URI("http://127.0.0.1:#{port}#{path}")).split(" ", 2)
      rescue SystemCallError, EOFError
        # No worker listens yet, or one has just been killed.
      end
    end
    asking.filter_map(&:value)
  end

  # Repeats the block until its result is neither nil nor false, and returns it.
  def wait_until
    ends = Ringwell::Deadline.now + PATIENCE
    loop do
      found = yield
      return found if found

      flunk "not within #{PATIENCE} s" if Ringwell::Deadline.now > ends
      sleep 0.02
    end
  end
end
