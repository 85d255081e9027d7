# frozen_string_literal: true

require "contract"
require "minitest/mock"

# Kept-alive connections, several endpoints, and failures of both.
class ConnectionTest < RingwellTest
  in_every_mode "hundreds of calls open no more connections than the client has" do |mode|
    served = stub_server { |request| numbers(request) }
    one = client(served.url, deadline: 20, connections: 4)
    assert_equal 400, Modes.run(mode, 20) { 20.times.map { ask(one) } }.flatten.size
    assert_operator served.connections, :<=, 4
  end

  in_every_mode "a kept-alive connection closed by the server is replaced silently" do |mode|
    served = stub_server { |request| request.socket.write(numbers(request)) && :close }
    one = client(served.url, deadline: 5)
    Modes.run(mode, 1) { ask(one) && sleep(0.02) && ask(one) }
      .each { |allocation| assert_instance_of Ringwell::Allocation, allocation }
    assert_equal [2, 0], [served.connections, one.retries]
  end

  in_every_mode "a request sent while the server closes the connection is repeated and counted" do |mode|
    served = stub_server { |request| request.number == 2 ? :close : numbers(request) }
    one = client(served.url, deadline: 5, instrumenter: events = Contract::Events.new)
    Modes.run(mode, 1) { 2.times.map { ask(one) } }.flatten
      .each { |allocation| assert_instance_of Ringwell::Allocation, allocation }
    assert_equal [3, 2, 1], [served.requests.size, served.connections, one.retries]
    assert_equal [{endpoint: served.url}], events.payloads("retry.ringwell")
    assert_equal 2, events.payloads("connect.ringwell").size
    assert_equal [false, true], events.payloads("bulk.ringwell").map { |payload| payload[:reused] }
  end

  it "a request is sent twice at most" do
    served = stub_server { |request| request.number == 1 ? numbers(request) : :close }
    one = client(served.url, deadline: 5)
    ask(one)
    assert_raises(Ringwell::ConnectionLost) { ask(one) }
    assert_equal [3, 1], [served.requests.size, one.retries]
  end

  it "a new connection that breaks does not cause a repetition" do
    served = stub_server { :close }
    error = assert_raises(Ringwell::ConnectionLost) { ask(client(served.url, deadline: 5)) }
    assert_equal [true, 1], [error.retryable?, served.requests.size]
  end

  it "a request is not repeated after its answer has begun" do
    served = stub_server do |request|
      next numbers(request) if request.number == 1

      request.socket.write("HTTP/1.1 200 OK\r\n")
      :close
    end
    one = client(served.url, deadline: 5)
    ask(one)
    assert_raises(Ringwell::ConnectionLost) { ask(one) }
    assert_equal [2, 0], [served.requests.size, one.retries]
  end

  it "a late request is not repeated, and its connection is not reused" do
    served = stub_server { |request| request.number == 2 ? :hang : numbers(request) }
    one = client(served.url, deadline: 0.1)
    ask(one)
    assert_raises(Ringwell::DeadlineExceeded) { ask(one) }
    assert_equal [2, 0, 0], [served.requests.size, one.retries, one.connections[:idle]]
    assert_equal :allocated, ask(one).reason
  end

  it "a reset connection counts as lost, like a closed one" do
    served = stub_server do |request|
      next numbers(request) if request.number == 1

      request.socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_LINGER, [1, 0].pack("ii"))
      :close
    end
    one = client(served.url, deadline: 5)
    ask(one)
    assert_raises(Ringwell::ConnectionLost) { ask(one) }
    assert_equal 1, one.retries
  end

  it "a connection that was reset while idle is detected" do
    served = stub_server do |request|
      request.socket.write(numbers(request))
      request.socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_LINGER, [1, 0].pack("ii"))
      :close
    end
    one = client(served.url, deadline: 5)
    ask(one)
    sleep 0.02
    assert_equal :allocated, ask(one).reason
    assert_equal 0, one.retries
  end

  it "a refusal that arrives before the whole body was read is recognized" do
    served = TCPServer.new("127.0.0.1", 0)
    @to_close << served
    Thread.new do
      socket = served.accept
      socket.readpartial(100)
      socket.write(StubServer.answer("{}", status: "413 Too Large",
        headers: "connection: close\r\n"))
      socket.close_write
      sleep 0.05
      socket.close
    end
    one = client("http://127.0.0.1:#{served.addr[1]}", deadline: 5)
    error = assert_raises(Ringwell::Error) { one.bulk("x" * 8_000_000) }
    # The kernel may discard the answer together with the unread bytes.
    assert_includes [Ringwell::ServerError, Ringwell::ConnectionLost], error.class
  end

  it "a restart of the server costs a connection and no error" do
    pool = Server.pool(1, key: KEY, numbers: %w[8885550101-8885550199])
    first = Server.new(pool)
    one = client(first.url, deadline: 10)
    one.allocate(1, key: KEY)
    first.stop
    server(pool, port: first.port)
    assert_equal :allocated, one.allocate(1, key: KEY).reason
  end

  it "a connection that was idle for too long is not reused" do
    served = stub_server { |request| numbers(request) }
    one = client(served.url, deadline: 5, idle: 0.02)
    2.times { ask(one) }
    assert_equal 1, served.connections
    sleep 0.03
    ask(one)
    assert_equal [2, 1], [served.connections, one.connections[:idle]]
  end

  it "bytes without a request end a connection" do
    served = stub_server { |request| numbers(request) + "HTTP/1.1 200" }
    one = client(served.url, deadline: 5)
    ask(one)
    assert_equal 0, one.connections[:idle]
    junk = 0
    late = stub_server do |request|
      request.socket.write(numbers(request))
      sleep 0.01
      request.socket.write("junk")
      junk += 1
      nil
    end
    one = client(late.url, deadline: 5)
    2.times { |call| ask(one) && (sleep(0.002) until junk > call) }
    assert_equal 2, late.connections
  end

  it "endpoints take turns, and one that refuses is left out" do
    served = 2.times.map { stub_server { |request| numbers(request) } }
    one = client([served[0].url, nobody, served[1].url], deadline: 5)
    12.times { assert_equal :allocated, ask(one).reason }
    served.each { |server| assert_operator server.requests.size, :>=, 4 }
  end

  it "an unresponsive endpoint costs one call its time, the others nothing" do
    served = stub_server { |request| numbers(request) }
    assert_takes(0.1..0.15) do
      one = client([silent, served.url], deadline: 0.1, overflow: {"42" => "8005550100"})
      assert_equal [[:allocated, 19], [:late, 1]], 20.times.map { ask(one).reason }.tally.sort
    end
  end

  it "an endpoint that accepts no connection uses only its part of the time" do
    served = stub_server { |request| numbers(request) }
    one = client([full, served.url], deadline: 0.2)
    assert_equal %i[allocated] * 4, 4.times.map { ask(one).reason }
  end

  it "idle connections of one endpoint make room for those of another" do
    served = 2.times.map { stub_server { |request| numbers(request) } }
    one = client(served.map(&:url), deadline: 5, connections: 1)
    4.times { ask(one) }
    assert_equal({idle: 1, taken: 0}, one.connections)
  end

  it "all addresses of a name are tried" do
    served = stub_server { |request| numbers(request) }
    port = served.url[/\d+\z/].to_i
    looked_up([Addrinfo.tcp("127.0.0.2", Server.free_port), Addrinfo.tcp("127.0.0.1", port)]) do
      assert_equal :allocated, ask(client("http://ringwell.test:#{port}", deadline: 5)).reason
    end
    looked_up([Addrinfo.tcp("127.0.0.1", Server.free_port)] * 2) do
      assert_raises(Ringwell::ConnectError) { ask(client("http://ringwell.test", deadline: 5)) }
    end
  end

  it "looking up a name takes no longer than the deadline, in #{Modes::ALL.join(", ")}" do
    looked_up(-> { sleep 5 }) do
      one = client("http://ringwell.test", deadline: 0.05)
      Modes::ALL.each do |mode|
        assert_takes(0.05..0.1) do
          assert_instance_of Ringwell::DeadlineExceeded, Modes.run(mode, 1) { ask(one) }[0]
        end
      end
    end
  end

  it "a name that does not exist is not a server" do
    looked_up(-> { raise SocketError, "unknown" }) do
      error = assert_raises(Ringwell::ConnectError) { ask(client("http://ringwell.test")) }
      assert_match(/unknown/, error.message)
      assert_instance_of SocketError, error.cause
    end
  end

  it "IPv6 works" do
    listener = TCPServer.new("::1", 0)
    @to_close << listener
    assert_raises(Ringwell::DeadlineExceeded) do
      ask(client("http://[::1]:#{listener.addr[1]}", deadline: 0.05))
    end
  rescue Errno::EADDRNOTAVAIL, Errno::EAFNOSUPPORT
    skip "this machine has no IPv6"
  end

  it "a stopped caller returns its slot and leaves no socket" do
    one = client(silent, deadline: 5, connections: 1)
    before = open_sockets
    3.times do
      waiting = Thread.new { ask(one) }
      sleep 0.01 until one.connections[:taken] == 1 && waiting.stop?
      waiting.kill.join
    end
    assert_equal({idle: 0, taken: 0}, one.connections)
    assert_equal before, open_sockets
  end

  it "a caller that is stopped while connecting leaves no socket" do
    one = client(full, deadline: 5)
    before = open_sockets
    waiting = Thread.new { ask(one) }
    sleep 0.01 until one.connections[:taken] == 1 && waiting.stop?
    waiting.kill.join
    assert_equal before, open_sockets
  end

  it "close works from anywhere, and later calls still work" do
    served = stub_server { |request| numbers(request) }
    one = client(served.url, deadline: 5)
    ask(one)
    Thread.new { one.close }.join
    assert_equal [{idle: 0, taken: 0}, :allocated], [one.connections, ask(one).reason]
    assert_equal [{idle: 0, taken: 0}, 2], [one.connections, served.connections]
  end

  it "a forked child has its own connections" do
    running = server(Server.pool(1, key: KEY, numbers: %w[8885550101-8885550199]))
    one = client(running.url, deadline: 10, connections: 1)
    numbers = [one.allocate(1, key: KEY).number]
    reader, writer = IO.pipe
    # The child must not lose a slot because of a call in progress in the parent.
    child = one.instance_variable_get(:@connections).place(Ringwell::Deadline.new(5)) do
      fork do
        writer.puts(3.times.map { one.allocate(1, key: KEY).number })
        exit!
      end
    end
    3.times { numbers << one.allocate(1, key: KEY).number }
    Process.wait(child)
    writer.close
    numbers.concat(reader.readlines(chomp: true))
    assert_equal 7, numbers.uniq.size
    assert_equal({idle: 1, taken: 0}, one.connections)
  end

  it "a slot taken before a fork is not returned twice" do
    places = Ringwell::Connections.new(size: 1, idle: 1)
    deadline = Ringwell::Deadline.new(5)
    places.place(deadline) do
      # A different process id has the same effect on the object as a fork.
      Process.stub(:pid, -1) { places.place(deadline) { assert_equal 1, places.to_h[:taken] } }
    end
    assert_equal 0, places.to_h[:taken]
    places.place(deadline) { assert_equal 1, places.to_h[:taken] }
  end

  it "without a subscriber the instrumenter is not called, and nothing is allocated" do
    notifier = Struct.new(:on) { def listening?(_name) = on }.new(false)
    quiet = Struct.new(:notifier) { def instrument(*) = raise("no subscriber") }.new(notifier)
    fakes = [nil, quiet].map do |instrumenter|
      Ringwell::Fake.new(instrumenter: instrumenter).pool(1, key: KEY, numbers: [],
        overflow: "8885550199")
    end
    counts = fakes.map do |fake|
      Array.new(20) do
        before = GC.stat(:total_allocated_objects)
        fake.allocate(1, key: KEY)
        GC.stat(:total_allocated_objects) - before
      end.min
    end
    assert_equal counts[0], counts[1]
  end

  it "subscribers get the reason when a whole batch fails" do
    one = client(dead = nobody, overflow: {"42" => "8005550100"},
      instrumenter: events = Contract::Events.new)
    ask(one)
    assert_equal({rows: 1, deadline: 0.15, endpoint: dead, reused: false, reason: :unreachable,
                   overflowed: 1, failed: 0},
      events.payloads("bulk.ringwell").last)
  end

  private

  def ask(one) = one.allocate("42", key: KEY, params: {m1: "autos"})

  def numbers(request) = StubServer.answer(StubServer.rows(request.body))

  # Counts only sockets, because the examples that run at the same time open and close pipes.
  def open_sockets
    Dir["/proc/self/fd/*"].count do |file|
      File.readlink(file).start_with?("socket:")
    rescue Errno::ENOENT
      false
    end
  end

  # Answers every look-up of a name with these addresses, or with the lambda's result.
  def looked_up(answer, &block)
    Addrinfo.stub(:getaddrinfo, ->(*) { answer.is_a?(Proc) ? answer.call : answer }, &block)
  end
end
