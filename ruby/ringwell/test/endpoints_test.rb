# frozen_string_literal: true

# Several servers: the choice of the next one, rests after failures, and the look-up of names.
class EndpointsTest < RingwellTest
  OVERFLOW = {"42" => "8005550100"}.freeze

  in_every_mode "a server that answers 503 rests, and the next one is tried" do |mode|
    busy = stub_server { StubServer.answer("{}", status: "503 Busy") }
    good = stub_server { |request| numbers(request) }
    one = client([busy.url, good.url], deadline: 5, overflow: OVERFLOW)
    reasons = Modes.run(mode, 4) { Array.new(10) { ask(one).reason } }.flatten
    assert_equal({allocated: 40}, reasons.tally)
    assert_operator busy.requests.size, :<=, 4
  end

  it "if all servers answer 503, the overflow number is returned, after one attempt each" do
    busy = Array.new(3) { stub_server { StubServer.answer("{}", status: "503 Busy") } }
    one = client(busy.map(&:url), deadline: 5, overflow: OVERFLOW)
    assert_equal :failed, ask(one).reason
    assert_equal [1, 1, 1], busy.map { |server| server.requests.size }
  end

  it "one call at a time retries a hanging server, at growing intervals" do
    good = stub_server { |request| numbers(request) }
    one = client([silent, good.url], deadline: 0.1, connections: 8, overflow: OVERFLOW)
    2.times { ask(one) }
    late = [1.1, 3.2, 7.3].map do |seconds|
      later(seconds) { Modes.run(:threads, 8) { ask(one).reason } }.count(:late)
    end
    assert_equal [1, 1, 1], late
    # Now the hanging server rests for 8 s.
    late = [15.2, 16].map do |seconds|
      later(seconds) { Array.new(4) { ask(one).reason } }.count(:late)
    end
    assert_equal [0, 1], late
  end

  it "a recovered server is used like the others" do
    hangs = true
    first = stub_server { |request| hangs ? :hang : numbers(request) }
    second = stub_server { |request| numbers(request) }
    one = client([first.url, second.url], deadline: 0.1, overflow: OVERFLOW)
    2.times { ask(one) }
    hangs = false
    later(1.1) do
      before = first.requests.size
      8.times { assert_equal :allocated, ask(one).reason }
      assert_operator first.requests.size - before, :>=, 4
    end
  end

  it "a stopped probe lets another call probe" do
    good = stub_server { |request| numbers(request) }
    one = client([silent, good.url], deadline: 0.1, overflow: OVERFLOW)
    2.times { ask(one) }
    reasons = later(1.1) do
      Thread.new { ask(one) }.tap { |_probe| sleep 0.02 }.kill.join
      Array.new(2) { ask(one).reason }
    end
    assert_includes reasons, :late
  end

  it "a name is looked up by one thread at a time, in #{Modes::ALL.join(", ")}" do
    one = client("http://ringwell.test", deadline: 0.02, overflow: OVERFLOW)
    looked_up = 0
    counted(-> { (looked_up += 1) && sleep }) do
      Modes::ALL.each do |mode|
        2.times { assert_equal [:late], Modes.run(mode, 10) { ask(one).reason }.uniq }
      end
    end
    assert_equal 1, looked_up
  end

  it "the addresses of a name are cached, and old ones are used during a new look-up" do
    served = stub_server { |request| numbers(request) }
    port = served.url[/\d+\z/].to_i
    one = client("http://ringwell.test:#{port}", deadline: 0.1, connections: 1)
    looked_up = 0
    here = -> { (looked_up += 1) && [Addrinfo.tcp("127.0.0.1", port)] }
    counted(here) { 3.times { ask(one) && one.close } }
    assert_equal 1, looked_up
    later(31) { counted(-> { sleep 1 }) { 3.times { ask(one) && one.close } } }
  end

  it "a look-up whose thread is gone, as in a forked child, starts again" do
    one = client("http://ringwell.test", deadline: 0.02)
    looking = nil
    counted(-> { (looking = Thread.current) && sleep }) do
      assert_raises(Ringwell::DeadlineExceeded) { ask(one) }
      # On a busy machine, the thread may begin after the deadline.
      sleep 0.001 until looking
    end
    looking.kill.join
    counted(-> { raise SocketError, "unknown" }) do
      assert_raises(Ringwell::ConnectError) { one.allocate("42", key: KEY, deadline: 5) }
    end
  end

  it "a name whose addresses refuse connections is looked up again" do
    served = stub_server { |request| numbers(request) }
    port = served.url[/\d+\z/].to_i
    one = client("http://ringwell.test:#{port}", deadline: 5)
    counted(-> { [Addrinfo.tcp("127.0.0.1", Server.free_port)] }) do
      assert_raises(Ringwell::ConnectError) { ask(one) }
    end
    counted(-> { [Addrinfo.tcp("127.0.0.1", port)] }) do
      sleep 0.005 until (ask(one) rescue nil)
    end
  end

  private

  def ask(one) = one.allocate("42", key: KEY)

  def numbers(request) = StubServer.answer(StubServer.rows(request.body))

  # Runs the block with the clock this many seconds ahead.
  def later(seconds, &)
    now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds }
    Ringwell::Deadline.stub(:now, now, &)
  end

  def counted(answer, &) = Addrinfo.stub(:getaddrinfo, ->(*) { answer.call }, &)
end
