# frozen_string_literal: true

require "ringwell/engine/by_fiddle"

# Many threads call one engine. No number is allocated twice during its lockout, and each row gets a
# number of its own pool.
#
# A few calls are enough to detect a shared buffer, because threads switch at each line of the
# driver. `CALLS=100000 ruby test/run.rb -n /goes_out_twice/` makes more calls, in 17 s.
class ThreadsTest < RingwellTest
  CALLS = Integer(ENV.fetch("CALLS", 2000))
  THREADS = 8
  POOLS = 8
  KEYS = (1..POOLS).to_h { |id| [id, format("S3CR3TKEY%07d", id)] }.freeze
  # The driver's own code, in which another thread may run between a call and its answer.
  SAID = Ringwell::Engine::ByFiddle.instance_method(:said)

  %i[shim fiddle].product([false, true]).each do |driver, release_gvl|
    mode = release_gvl ? "without the GVL" : "with the GVL"
    it "no number goes out twice or from another pool, by #{driver} #{mode}" do
      skip "the shim is not compiled" if driver == :shim && !shim?
      assert_equal({doubled: 0, of_other_pools: 0, calls: CALLS}, judge(driver, release_gvl))
    end
  end

  private

  def shim? = Ringwell::Engine::Library.driver == :shim

  def judge(driver, release_gvl)
    engine = opened(durability: :memory, ring_pools: ring_pools, driver:, release_gvl:)
    rows = interrupted { THREADS.times.map { |id| calls(engine, id + 1) }.flat_map(&:value) }
    {doubled: rows.size - rows.map(&:last).uniq.size,
      of_other_pools: rows.count { |pool, number| number[0, 4] != prefix(pool) },
      calls: rows.size}
  end

  # Enough numbers for all of a thread's calls.
  def ring_pools
    KEYS.map do |id, key|
      {id:, key:, numbers: ["#{prefix(id)}000000-#{prefix(id)}#{format("%06d", CALLS / THREADS)}"]}
    end
  end

  def prefix(pool) = (2000 + pool).to_s

  def calls(engine, pool)
    Thread.new do
      row = Ringwell::Request.new(pool:, key: KEYS.fetch(pool))
      body = Ringwell::Request.body([row])
      Array.new(CALLS / THREADS) { [pool, engine.bulk(body)[/"promo_number":"(\d+)"/, 1].to_s] }
    end
  end

  # Lets another thread run at each line of the driver. Threads usually switch ten times a second.
  def interrupted(&)
    TracePoint.new(:line) { Thread.pass }.enable(target: SAID, &)
  end
end
