# frozen_string_literal: true

require "digest"

# Tests that a client reads overflow numbers from a server's list of ring pools.
class PoolListTest < RingwellTest
  TOKEN = "a-token-of-the-tests"

  it "overflow numbers come from a real server's list before any request for a number" do
    management = "127.0.0.1:#{Server.free_port}"
    pools = [Server.pool(1, key: KEY, numbers: %w[8885550101-8885550102], overflow: "8885550199"),
      Server.pool(2, key: KEY, numbers: %w[8885550201])].join
    running = Server.new(pools, settings: <<~TOML)
      management.address = "#{management}"
      management.token_sha256 = ["#{Digest::SHA256.hexdigest(TOKEN)}"]
      directory.database = "sqlite:data/directory.sqlite"
    TOML
    one = client(running.url, deadline: 0.2)
    assert_nil one.overflow(1)
    assert_equal 1, one.learn_overflow("http://#{management}", token: TOKEN)
    assert_equal ["8885550199", nil], [one.overflow(1), one.overflow(2)]
    error = assert_raises(Ringwell::ServerError) do
      one.learn_overflow("http://#{management}", token: "another")
    end
    assert_equal 401, error.status
    running.stop
    running = nil
    allocation = one.allocate(1, key: KEY)
    assert_equal ["8885550199", :unreachable], [allocation.number, allocation.reason]
  ensure
    running&.stop
  end

  it "all pages of a list are requested" do
    pages = [[{id: 1, overflow_number: "8885550101"}, {id: 7, overflow_number: nil}],
      [{id: 9, overflow_number: "8885550109"}], []]
    served = stub_server { StubServer.answer(JSON.generate(pages.shift)) }
    one = client(nobody)
    assert_equal 2, one.learn_overflow(served.url, token: TOKEN)
    assert_equal ["8885550101", nil, "8885550109"], [1, 7, 9].map { |pool| one.overflow(pool) }
    assert_equal ["/v1/pools", "/v1/pools?after=7", "/v1/pools?after=9"],
      served.requests.map { |request| request.head.split[1] }
    assert_includes served.requests[0].head, "authorization: Bearer #{TOKEN}\r\n"
  end

  it "anything but a list is refused, and a missing list exceeds the deadline" do
    one = client(nobody)
    ["{", "3", "[3]", '{"a":1}', '[{"id":1,"overflow_number":"12"}]'].each do |body|
      served = stub_server { StubServer.answer(body) }
      assert_raises(Ringwell::ProtocolError, body) { one.learn_overflow(served.url, token: TOKEN) }
    end
    assert_raises(Ringwell::DeadlineExceeded) do
      one.learn_overflow(silent, token: TOKEN, deadline: 0.05)
    end
    assert_raises(Ringwell::ConnectError) { one.learn_overflow(nobody, token: TOKEN) }
    assert_raises(Ringwell::ConfigError) { one.learn_overflow(nobody, token: "a\r\nb: c") }
  end
end
