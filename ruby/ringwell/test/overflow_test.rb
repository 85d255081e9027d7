# frozen_string_literal: true

# A known overflow number is returned for every failure that is not the caller's mistake.
class OverflowTest < RingwellTest
  OVERFLOW = {"42" => "8005550100"}.freeze

  {"PoolExhausted" => :exhausted, "ServiceUnavailable" => :failed,
    "InternalServiceError" => :failed}.each do |error_class, reason|
    it "for a row that fails by #{error_class} the known overflow number is returned" do
      served = answering("error_class" => error_class, "message" => "refer to error handle 7")
      known = client(served.url, deadline: 5, overflow: OVERFLOW)
      allocation = known.allocate("42", key: KEY, request_id: "a")
      assert_equal ["8005550100", reason, "a", true],
        [allocation.number, allocation.reason, allocation.request_id, allocation.overflow?]
      batch = known.bulk { |b| b.allocate("42", key: KEY).allocate("7", key: KEY) }
      assert_equal [[reason], [Ringwell::RowError]], [batch.overflowed.map(&:reason), batch.errors.map(&:class)]
      assert_raises(Ringwell::RowError) { client(served.url, deadline: 5).allocate("42", key: KEY) }
    end
  end

  it "a row that is the caller's mistake remains an error" do
    %w[InvalidKey InvalidInput BrandNew].each do |error_class|
      served = answering("error_class" => error_class, "message" => "no")
      known = client(served.url, deadline: 5, overflow: OVERFLOW)
      assert_raises(Ringwell::RowError) { known.allocate("42", key: KEY) }
    end
  end

  it "an exhausted pool without an overflow number on the server gets the client's" do
    running = server(Server.pool(1, key: KEY, numbers: %w[8885550101]))
    one = client(running.url, deadline: 10, overflow: {1 => "8885550199"})
    assert_equal [:allocated, :exhausted], Array.new(2) { one.allocate(1, key: KEY).reason }
  end

  it "a batch of more rows than a server accepts is split, in order" do
    running = server(Server.pool(1, key: KEY, numbers: ["8885550000-8885559999"]))
    one = client(running.url, deadline: 10)
    rows = Array.new(1201) { |row| Ringwell::Request.new(pool: 1, key: KEY, request_id: row) }
    batch = one.bulk(rows)
    assert_equal (0..1200).to_a, batch.map(&:request_id)
    assert_equal 1201, batch.map(&:number).uniq.size
    again = Array.new(2) { one.bulk(rows, idempotency_key: "a").map(&:number) }
    assert_equal again[0], again[1]
    assert_equal 1201, again[0].uniq.size
  end

  it "a batch of more bytes than a server accepts is split too" do
    running = server(Server.pool(1, key: KEY, numbers: ["8885550000-8885559999"]))
    one = client(running.url, deadline: 10)
    rows = Array.new(100) do |row|
      Ringwell::Request.new(pool: 1, key: KEY, params: {m1: "x" * 7000}, request_id: row)
    end
    assert_equal (0..99).to_a, one.bulk(rows).map(&:request_id)
  end

  it "late parts get overflow numbers, earlier parts keep their answers" do
    served = stub_server do |request|
      sleep 0.15
      StubServer.answer(StubServer.rows(request.body))
    end
    one = client(served.url, deadline: 0.25, overflow: OVERFLOW)
    batch = one.bulk { |b| 1501.times { |row| b.allocate("42", key: KEY, request_id: row) } }
    assert_equal (0..1500).to_a, batch.map(&:request_id)
    reasons = batch.map(&:reason).chunk_while { |a, b| a == b }.map { |run| [run[0], run.size] }
    assert_equal [[:allocated, 500], [:late, 1001]], reasons
  end

  it "an idempotency key that is too long for parts is refused" do
    rows = Array.new(501) { Ringwell::Request.new(pool: 1, key: KEY) }
    error = assert_raises(ArgumentError) { client(nobody).bulk(rows, idempotency_key: "x" * 241) }
    assert_match(/at most 240 characters/, error.message)
  end

  private

  # A server that gives each row the same answer.
  def answering(row)
    stub_server do |request|
      ids = StubServer.rows(request.body).map { |one| one.slice("request_id") }
      StubServer.answer(ids.map { |id| id.merge(row) })
    end
  end
end
