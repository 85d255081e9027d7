# frozen_string_literal: true

# The fake's features beyond the contract: simulated faults, and its history.
class FakeTest < RingwellTest
  def setup
    super
    @fake = Ringwell::Fake.new(overflow: {"2" => "8885550299"})
    @fake.pool("1", key: KEY, numbers: %w[8885550101 8885550102], overflow: "8885550199")
    @fake.pool("2", key: KEY, numbers: %w[8885550201], overflow: "8885550299", lifetime: 60)
  end

  it "an answer later than the deadline is an overflow number, and no real time passes" do
    @fake.late!(0.2)
    late = ask(2)
    assert_equal ["8885550299", :late], [late.number, late.reason]
    assert_in_delta 0.15, @fake.now
    assert_equal :allocated, @fake.allocate("2", key: KEY, deadline: 0.3).reason
    assert_in_delta 0.35, @fake.now
    assert_takes(0..0.1) { @fake.allocate("2", key: KEY, deadline: 0.2) }
  end

  it "without a known overflow number faults are raised" do
    @fake.late!(0.2)
    assert_raises(Ringwell::DeadlineExceeded) { ask(1) }
    @fake.refuse!
    assert_raises(Ringwell::ConnectError) { ask(1) }
    @fake.recover!
    @fake.fail!
    assert_equal 500, assert_raises(Ringwell::ServerError) { ask(1) }.status
    @fake.recover!
    assert_equal "8885550101", ask(1).number
  end

  it "each kind of fault has its reason" do
    @fake.refuse!
    assert_equal :unreachable, ask(2).reason
    @fake.recover!
    @fake.fail!(503)
    assert_equal :failed, ask(2).reason
  end

  it "an exhausted pool has numbers again afterwards" do
    @fake.exhaust!(1)
    assert_equal "8885550199", ask(1).number
    @fake.recover!
    assert_equal "8885550101", ask(1).number
  end

  it "it reports who was shown a number" do
    @fake.allocate(1, key: KEY, params: {m1: "autos"})
    @fake.advance(5)
    assert_equal({"m1" => "autos"}, @fake.holder("8885550101")[:params])
    assert_nil @fake.holder("8885550199")
    assert_equal 1, @fake.history.size
    @fake.close
  end

  it "after the lifetime a visitor gets another number than the one that others have" do
    mine = @fake.allocate(2, key: KEY, visitor: "a")
    @fake.advance(61)
    assert_equal mine.number, @fake.allocate(2, key: KEY, visitor: "b").number
    assert @fake.allocate(2, key: KEY, visitor: "a").overflow?
    @fake.advance(61)
    assert_equal mine.number, @fake.allocate(2, key: KEY, visitor: "b").number
  end

  it "the count of learned overflow numbers is limited" do
    full = {}
    full.define_singleton_method(:size) { Ringwell::Allocator::LEARNT_MAX }
    fake = Ringwell::Fake.new.pool(1, key: KEY, numbers: [], overflow: "8885550199")
    fake.instance_variable_set(:@overflow, full)
    assert fake.allocate(1, key: KEY).overflow?
    assert_nil fake.overflow(1)
  end

  it "its pools are validated" do
    assert_raises(ArgumentError) { @fake.pool(3, key: KEY, numbers: ["12"]) }
    assert_raises(KeyError) { @fake.exhaust!(99) }
  end

  private

  def ask(pool) = @fake.allocate(pool, key: KEY)
end
