# frozen_string_literal: true

# Coverage includes only files that are loaded later: require this file first.
require_relative "support/covered" if ENV["RINGWELL_COVERAGE"]

require "minitest"
require "minitest/mock"
require "ringwell"
require "ringwell/config"
require "ringwell/engine"
require "ringwell/fake"
require "ringwell/rack"
require_relative "support/modes"
require_relative "support/quiet"
require_relative "support/server"
require_relative "support/stub_server"
require_relative "support/telephone"

# The base class of all tests.
class RingwellTest < Minitest::Test
  KEY = "S3CR3TKEY0000001"

  # Defines a test that is named by a sentence of the specification.
  def self.it(sentence, &block) = define_method("test_#{sentence.tr(" ", "_")}", &block)

  # Defines a test that runs in threads and under each scheduler, all at once, because it waits most
  # of the time.
  def self.in_every_mode(sentence, &block)
    it "#{sentence}, in #{Modes::ALL.join(", ")}" do
      runs = Modes::ALL.map do |mode|
        Thread.new do
          Thread.current.report_on_exception = false
          instance_exec(mode, &block)
        rescue Minitest::Assertion => error
          raise error.class, "#{mode}: #{error.message}"
        end
      end
      runs.each(&:value)
    end
  end

  def setup
    @to_stop = []
    @to_close = []
  end

  def teardown
    @to_stop.each(&:stop)
    @to_close.each(&:close)
  end

  def stub_server(...) = stopped_later(StubServer.new(...))

  def slow_server(seconds) = stopped_later(StubServer.numbers(after: seconds))

  def server(...) = stopped_later(Server.new(...))

  def stopped_later(one) = @to_stop.push(one).last

  def client(endpoints, **options)
    made = Ringwell::Client.new(endpoints, **options)
    @to_close << made
    made
  end

  # Opens an engine in this process.
  def opened(**options)
    engine = Ringwell::Engine.open(**options)
    @to_close << engine
    engine
  end

  # Expects the block to take this long: never less, and in at least one of fifty attempts not more,
  # because other work on the machine can only add time.
  def assert_takes(seconds)
    times = []
    50.times do
      started = Ringwell::Deadline.now
      yield
      times << (Ringwell::Deadline.now - started)
      assert_operator times.last, :>=, seconds.begin
      return if times.last <= seconds.end
    end
    flunk "took #{times.map { |time| time.round(3) }.join(", ")} s, not #{seconds}"
  end

  # An address without a listener.
  def nobody = "http://127.0.0.1:#{Server.free_port}"

  # An address that accepts connections and never answers.
  def silent
    listener = TCPServer.new("127.0.0.1", 0)
    @to_close << listener
    "http://127.0.0.1:#{listener.addr[1]}"
  end

  # An address whose connection queue is full: another connection is neither accepted nor refused.
  def full
    listener = Socket.tcp_server_sockets("127.0.0.1", 0).first
    listener.listen(0)
    address = listener.local_address
    @to_close << listener
    3.times do
      socket = Socket.new(:INET, :STREAM)
      @to_close << socket
      socket.connect_nonblock(address, exception: false)
    end
    "http://127.0.0.1:#{address.ip_port}"
  end
end

# Makes Fiddle call the engine in all tests of a class, as if the C shim had not been compiled.
module WithFiddle
  def run = Ringwell::Engine::Library.stub(:driver, :fiddle) { super }
end
