# frozen_string_literal: true

# The behaviour of every source of numbers. A class that includes this has
# `source(pools, **options)`, which creates a source with these ring pools, and
# `time_passes(seconds)`, which advances its clock.
module Contract
  NUMBERS = %w[8885550101 8885550102].freeze
  OVERFLOW = "8885550199"
  POOLS = {
    1 => {key: "S3CR3TKEY0000001", numbers: NUMBERS, overflow: OVERFLOW},
    2 => {key: "S3CR3TKEY0000002", numbers: %w[8885550201 8885550202 8885550203]},
    3 => {key: "S3CR3TKEY0000003", numbers: %w[8885550301], overflow: "8885550399",
           lifetime: 0.05}
  }.freeze
  KEYS = POOLS.transform_values { |pool| pool[:key] }.freeze

  def self.included(tests)
    tests.it "numbers go out in order, followed by the overflow number, which is marked" do
      got = 3.times.map { allocate(1) }
      assert_equal [*NUMBERS, OVERFLOW], got.map(&:number)
      assert_equal %i[allocated allocated overflow], got.map(&:reason)
      assert_equal [false, false, true], got.map(&:overflow?)
      assert_equal ["1", "888-555-0101", ""], [got[0].pool, got[0].formatted, got[0].tracking_url]
    end

    tests.it "an overflow number is known after its first use" do
      assert_nil contract.overflow(1)
      3.times { allocate(1) }
      assert_equal OVERFLOW, contract.overflow(1)
    end

    tests.it "a pool without overflow number returns a retryable error" do
      3.times { allocate(2) }
      error = assert_raises(Ringwell::RowError) { allocate(2) }
      assert_equal [:pool_exhausted, true], [error.code, error.retryable?]
      assert_match(/\AAll numbers of ring pool 2 are in use and it has no overflow number; ask/,
        error.message)
      refute_nil error.backtrace
    end

    tests.it "a number comes back when its lifetime is over and not before" do
      # One batch, because on a busy machine the lockout could end between two calls.
      batch = contract.bulk { |b| 2.times { b.allocate(3, key: KEYS[3]) } }
      assert_equal %w[8885550301 8885550399], batch.map(&:number)
      time_passes(0.06)
      assert_equal "8885550301", allocate(3).number
    end

    tests.it "the rows of a batch are answered in their order and independently" do
      batch = contract.bulk do |b|
        b.allocate(2, key: KEYS[2], request_id: "a").allocate(1, key: "wrong-key", request_id: 7)
        b.allocate(1, key: KEYS[1], request_id: false).allocate(99, key: "wrong-key")
        b.allocate("2", key: KEYS[2], params: {m1: "autos"})
      end
      assert_equal [Ringwell::Allocation, Ringwell::RowError, Ringwell::Allocation,
        Ringwell::RowError, Ringwell::Allocation], batch.map(&:class)
      assert_equal ["a", 7, false, nil, nil], batch.map(&:request_id)
      assert_equal %w[8885550201 8885550101 8885550202], batch.allocations.map(&:number)
    end

    tests.it "a wrong key and an unknown pool get the same answer" do
      [1, 99].each do |pool|
        error = assert_raises(Ringwell::RowError) { allocate(pool, key: "wrong-key") }
        assert_equal "API Key 'wrong-key' is not valid for resource '#{pool}'", error.message
        assert_equal [:invalid_key, "InvalidKey", false],
          [error.code, error.error_class, error.retryable?]
      end
    end

    tests.it "the same visitor gets the same number" do
      first = allocate(2, visitor: "cookie-1")
      refute_equal first.number, allocate(2, visitor: "cookie-2").number
      assert_equal first.number, allocate(2, visitor: "cookie-1").number
    end

    tests.it "the same batch with the same idempotency key gets the same numbers" do
      twice = 2.times.map do
        contract.bulk(idempotency_key: "order 7") { |b| b.allocate(2, key: KEYS[2], params: {m1: "x"}) }
      end
      assert_equal twice[0], twice[1]
      refute_equal twice[0], contract.bulk { |b| b.allocate(2, key: KEYS[2], params: {m1: "x"}) }
    end

    tests.it "an idempotency key that does not fit into a header is refused" do
      ["", "a\r\nb: c", "ä", "x" * 257].each do |key|
        assert_raises(ArgumentError) { contract.bulk("{}", idempotency_key: key) }
      end
    end

    tests.it "an empty batch is not sent" do
      assert_equal 0, contract.bulk([]).size
    end

    tests.it "rows may be given as values" do
      rows = [Ringwell::Request.new(pool: 1, key: KEYS[1], params: {"key" => "mine"})]
      assert_equal NUMBERS[0], contract.bulk(rows)[0].number
      assert_equal NUMBERS[1], allocate(1, params: {"key" => "mine", m1: "x"}).number
    end

    tests.it "bytes go in and bytes come out" do
      suffix = "1/allocate_number.json?ring_pool_key=#{KEYS[1]}&m1=a"
      row = %({"api_suffix":"#{suffix}","request_id":"a"})
      assert_equal %({"responses":[{"request_id":"a","promo_number_formatted":"888-555-0101",) +
        %("promo_number":"8885550101","tracking_url":""}]}),
        contract.bulk(%({"requests":[#{row}]}))
    end

    tests.it "bytes that are not a batch are refused as a whole" do
      {"{" => [400, "the body is not JSON"],
        '{"requests":[]}' => [403, "requests must have at least one entry"],
        '{"rows":[]}' => [403, 'the body must be {"requests":[{"api_suffix":"..."}]}']}
        .each do |body, (status, message)|
          error = assert_raises(Ringwell::ServerError) { contract.bulk(body) }
          assert_equal [status, "InvalidInput", "status #{status}: #{message}"],
            [error.status, error.error_class, error.message]
        end
    end

    tests.it "a malformed row is an error of its own" do
      answer = contract.bulk('{"requests":[{"api_suffix":"nonsense","request_id":1}]}')
      assert_includes answer,
        '{"request_id":1,"error_class":"InvalidInput","message":"api_suffix must'
    end

    tests.it "an exception in a batch's block reaches the caller unchanged" do
      raised = Class.new(StandardError).new("mine")
      assert_same raised, assert_raises(raised.class) { contract.bulk { raise raised } }
    end

    tests.it "subscribers get events" do
      events = Events.new
      @contract = source(POOLS, instrumenter: events)
      3.times { allocate(1) }
      assert_equal({rows: 1, deadline: contract.deadline, overflowed: 1, failed: 0},
        events.payloads("bulk.ringwell").last.slice(:rows, :deadline, :overflowed,
          :failed))
    end
  end

  # An instrumenter that records its events.
  class Events
    def initialize = @events = []

    def instrument(name, payload)
      @events << [name, payload]
      yield
    end

    def payloads(name) = @events.filter_map { |event, payload| payload if event == name }
  end

  def contract = @contract ||= source(POOLS)

  def allocate(pool, key: KEYS[pool], **more) = contract.allocate(pool, key: key, **more)
end
