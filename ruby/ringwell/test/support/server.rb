# frozen_string_literal: true

require "tmpdir"
require "fileutils"
require "socket"

# A real `ringwell serve` with its own ring pools, on a TCP port and a unix socket.
class Server
  # A server starts within this time, even on a busy machine.
  PATIENCE = 20
  # Another server has taken the port.
  PortTaken = Class.new(StandardError)
  ROOT = File.expand_path("../../../..", __dir__)

  class << self
    # The program's path: RINGWELL_BIN, or cargo's build.
    def program
      @program ||= begin
        target = ENV.fetch("CARGO_TARGET_DIR", "#{ROOT}/target")
        built = %w[release debug].map { |profile| "#{target}/#{profile}/ringwell" }
        [ENV["RINGWELL_BIN"], *built].compact.find { |path| File.executable?(path) } or
          abort "no ringwell program: cargo build -p ringwell-cli, or set RINGWELL_BIN"
      end
    end

    # A port that was free a moment ago.
    def free_port
      listener = TCPServer.new("127.0.0.1", 0)
      listener.addr[1]
    ensure
      listener.close
    end
  end

  # @return [Integer] the port; the id of the program's process; the id of the process that started
  #   it
  attr_reader :port, :pid, :parent

  # @param pools [String] the ring pools in TOML
  # @param settings [String] other configuration lines, before the pools
  # @param files [Hash{String => String}] secrets beside the configuration, by name
  def initialize(pools, settings: "", files: {}, environment: {}, port: nil)
    @parent = Process.pid
    @files = Dir.mktmpdir("ringwell")
    files.each { |name, text| File.write("#{@files}/#{name}", text, perm: 0o600) }
    begin
      @port = port || Server.free_port
      configure(settings, pools)
      start(environment)
      wait
    rescue PortTaken
      # Another server of these tests has taken the port in the meantime. Without the exception, its
      # answers would be mistaken for those of this server.
      retry unless port
      raise
    end
  end

  def url = "http://127.0.0.1:#{port}"

  def socket = "unix:#{@files}/socket"

  # The program's arguments.
  def command = ["serve", "--config", "#{@files}/ringwell.toml"]

  # Kills the server, like a crash.
  def stop
    signal(:KILL)
    Process.wait(@pid)
    FileUtils.rm_rf(@files)
  end

  # Suspends the server in the middle of its work, and waits until it is suspended: until then, it
  # may still answer.
  def halt
    signal(:STOP)
    Process.wait(@pid, Process::WUNTRACED)
  end

  # A pool's TOML.
  def self.pool(id, key:, numbers:, overflow: nil, lifetime: 1800)
    last = overflow ? "overflow_number = #{overflow.inspect}" : "allow_overflow = false"
    <<~TOML
      [[ring_pool]]
      id = #{id}
      ring_pool_key = #{key.inspect}
      lifetime = "#{(lifetime * 1000).to_i}ms"
      numbers = #{numbers.inspect}
      #{last}
    TOML
  end

  private

  def configure(settings, pools)
    File.write("#{@files}/ringwell.toml", <<~TOML)
      data = "data"
      durability = "memory"
      shards = 1
      listen = ["127.0.0.1:#{@port}", "unix:#{@files}/socket"]
      deadline = "10s"
      drain_pause = "0s"
      #{settings}
      #{pools}
    TOML
  end

  # Connects to the socket, which belongs only to this server. The server opens its port first.
  def knock = UNIXSocket.new("#{@files}/socket").close

  def signal(name) = Process.kill(name, @pid)

  def start(environment)
    clean = ENV.keys.grep(/\ARINGWELL_/).to_h { |name| [name, nil] }
    @pid = Process.spawn(clean.merge(environment), Server.program, *command, chdir: @files, in: :close, out: File::NULL,
      err: "#{@files}/log")
  end

  def wait
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    begin
      knock
    rescue SystemCallError
      ended = Process.wait(@pid, Process::WNOHANG)
      late = Process.clock_gettime(Process::CLOCK_MONOTONIC) - started > PATIENCE
      if ended || late
        log = File.read("#{@files}/log")
        raise PortTaken if log.include?("another program already listens")

        raise "the server did not start:\n#{log}"
      end

      sleep 0.002
      retry
    end
  end
end

# A `ringwell demo`, as in the quick start.
class Demo < Server
  def initialize = super("")

  def command = ["demo", "--listen", "127.0.0.1:#{port}", "--durability", "memory"]

  private

  def knock = TCPSocket.new("127.0.0.1", port).close
end
