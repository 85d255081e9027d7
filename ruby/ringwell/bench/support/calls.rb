# frozen_string_literal: true

# Measures the cost of one engine call, through Fiddle and through the C shim, with the GVL kept and
# released, and with and without another busy thread. They take turns. The result is the median of
# the rounds.
class Calls
  WAYS = %i[fiddle shim].product([false, true]).freeze
  POOL = {id: 1, key: "S3CR3TKEY0000001", numbers: ["8880000000-8880000999"],
           overflow: "8880009999", lifetime: 0.01}.freeze

  # @param seconds [Float] the duration of each measurement
  # @param rounds [Integer]
  def initialize(seconds, rounds)
    @seconds = seconds
    @rounds = rounds
    drivers = [:fiddle, Ringwell::Engine::Library.driver].uniq
    @engines = WAYS.filter_map { |driver, release_gvl|
      next unless drivers.include?(driver)

      [[driver, release_gvl],
        Ringwell::Engine.open(durability: :memory, ring_pools: [POOL], driver:, release_gvl:)]
    }.to_h
  end

  # @return [Array<String>] a line for each batch size, without and with a busy thread
  def lines
    [1, ROWS].product([false, true]).map do |rows, busy|
      times = within(busy) { microseconds(Ringwell::Request.body([row] * rows)) }
      texts = times.map do |(driver, release_gvl), time|
        format("%s %s %.2f us", driver, release_gvl ? "without GVL" : "with GVL", time)
      end
      "a call of #{rows} rows#{", beside a busy thread" if busy}: #{texts.join(", ")}"
    end
  end

  private

  def row = Ringwell::Request.new(pool: 1, key: POOL[:key], params: {m1: "autos"})

  def within(busy)
    thread = Thread.new { loop { nil } } if busy
    yield
  ensure
    thread&.kill&.join
  end

  def microseconds(body)
    times = Hash.new { |all, way| all[way] = [] }
    @rounds.times { @engines.each { |way, engine| times[way] << time_of_a_call(engine, body) } }
    times.transform_values { |all| all.sort[all.size / 2] }
  end

  # While another thread is busy, a call that releases the GVL may take 100 ms. A few calls are then
  # enough.
  def time_of_a_call(engine, body)
    calls = 0
    started = passed = Ringwell::Deadline.now
    while passed - started < @seconds
      engine.bulk(body)
      calls += 1
      passed = Ringwell::Deadline.now
    end
    (passed - started) / calls * 1e6
  end
end
