# frozen_string_literal: true

# Faults outside of the servers: descriptors, addresses, interruptions. The result is a known
# overflow number, or otherwise one of the gem's own errors.
class FaultsTest < RingwellTest
  OVERFLOW = {"42" => "8005550100"}.freeze

  it "a process without descriptors gets the overflow number, or a ConnectError" do
    served = stub_server { |request| StubServer.answer(StubServer.rows(request.body)) }
    said = without_descriptors do
      known = client(served.url, deadline: 5, overflow: OVERFLOW)
      [ask(known).reason, (ask(client(served.url, deadline: 5)) rescue [$!.class, $!.message])]
    end
    assert_match(/\A\[:unreachable, \[Ringwell::ConnectError, ".*Too many open files/, said)
  end

  it "a name without addresses is not a server" do
    Addrinfo.stub(:getaddrinfo, []) do
      error = assert_raises(Ringwell::ConnectError) { ask(client("http://ringwell.test")) }
      assert_match(/has no address/, error.message)
      named = client("http://ringwell.test", overflow: OVERFLOW)
      assert_equal :unreachable, ask(named).reason
    end
  end

  it "a name that cannot be looked up for lack of threads is not a server" do
    # Only the client's own look-up creates a thread here.
    Thread.stub(:new, ->(*) { raise ThreadError, "can't create Thread" }) do
      error = assert_raises(Ringwell::ConnectError) { ask(client("http://ringwell.test")) }
      assert_match(/can't create Thread/, error.message)
    end
  end

  it "an exception from outside during the creation of a socket reaches the caller unchanged" do
    one = client(nobody)
    Socket.stub(:new, ->(*) { raise Timeout::Error, "execution expired" }) do
      assert_raises(Timeout::Error) { ask(one) }
    end
    assert_equal({idle: 0, taken: 0}, one.connections)
  end

  it "a deadline that ends before the second address is tried is exceeded" do
    over = Ringwell::Deadline.new(0.01)
    sleep 0.02
    endpoint = Ringwell::Endpoint.new(text: "http://ringwell.test:1")
    assert_raises(Ringwell::DeadlineExceeded) do
      Ringwell::Connection.new(endpoint, [Addrinfo.tcp("127.0.0.1", 1)] * 2, over)
    end
  end

  private

  def ask(one) = one.allocate("42", key: KEY)

  # Runs the block in a forked child that cannot open anything, and returns its result.
  def without_descriptors
    reader, writer = IO.pipe
    child = fork do
      highest = Dir.children("/proc/self/fd").map(&:to_i).max
      Process.setrlimit(:NOFILE, highest + 1)
      held = []
      loop { held << File.open(File::NULL) }
    rescue Errno::EMFILE
      writer.puts yield.inspect
      exit!
    end
    writer.close
    reader.read
  ensure
    Process.wait(child)
  end
end
