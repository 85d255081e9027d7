# frozen_string_literal: true

# The reader of common answers agrees with the JSON parser, or returns nil.
class PlainAnswerTest < RingwellTest
  Read = Ringwell::Batch::PlainAnswer

  it "an answer in the servers' form is read without a parser" do
    engine = opened(durability: :memory, ring_pools: [
      {id: 1, key: KEY, numbers: ["8885550101-8885550109"], overflow: "8885550199"}
    ])
    asked = rows("a", nil, "193C5F 7")
    answer = engine.bulk(asked.body)
    assert_equal parsed(answer, asked), Read.read(answer, asked)
    assert_equal %w[8885550101 8885550102 8885550103], Read.read(answer, asked).map(&:number)
    assert(Read.read(answer, asked).all? { |row| row.frozen? && row.number.frozen? })
  end

  it "an answer with anything unusual is left to the parser" do
    asked = rows("a")
    plain = '{"responses":[{"request_id":"a","promo_number_formatted":"888-555-0101",' \
            '"promo_number":"8885550101","tracking_url":""}]}'
    assert Read.read(plain, asked)
    {"a" => "b", '"a"' => '"a","x":1', "8885550101" => "1885550101", "888-" => "\u0661-", '"tracking_url":""' =>
      '"tracking_url":"","overflow":true', "]}" => "]} ", "{\"resp" => " {\"resp", "\"a\"," => "7,"}
      .each { |from, to| assert_nil Read.read(plain.sub(from, to), asked), to }
    assert_nil Read.read(plain.sub("888-", "\xff-"), asked)
    [rows, rows(nil), rows("a", "a"), rows(1), rows("A")].each { |others| assert_nil Read.read(plain, others) }
    # One id that looks like two rows.
    row = plain[/\{"request.*\}(?=\])/]
    two = plain.sub(row, "#{row},#{row}")
    assert Read.read(two, rows("a", "a"))
    assert_nil Read.read(two, rows("#{row},#{row}"[/a.*"a/]))
    # Two rows that are as long as three.
    long = plain.sub(row, "#{row.sub('"a"', "\"#{"x" * 88}b\"")},#{row.sub('"request_id":"a",', "")}")
    assert Read.read(long, rows("#{"x" * 88}b", nil))
    assert_nil Read.read(long, rows(nil, "b", nil))
    assert_nil Read.read('{"responses":[]}', rows)
  end

  it "whatever bytes an answer has, both readers agree" do
    random = Random.new(21)
    ids = [nil, "a", "b", "ab", "", "a b", "8885550101", 'a"', "ä", 1]
    agreed = 0
    4000.times do
      asked = rows(*random.rand(4).times.map { ids.sample(random:) })
      answered = asked.ids.map { |id| random.rand(12).zero? ? ids.sample(random:) : id }
      body = change(answer(answered, random), random)
      read = Read.read(body, asked) or next
      agreed += 1
      assert_equal parsed(body, asked), read, body
    end
    assert_operator agreed, :>, 400
  end

  private

  def rows(*ids)
    Ringwell::Batch::Builder.new(Ringwell::Rows.new).tap do |asked|
      ids.each { |id| asked.allocate("1", key: KEY, params: {m: "x"}, request_id: id) }
    end
  end

  # Returns the parser's result. In a plain answer, no row has an overflow number or an error.
  def parsed(body, asked)
    Ringwell::Batch.send(:parse, body, asked) { |row, outcome| flunk "row #{row} is #{outcome.inspect}" }
  end

  def answer(ids, random)
    numbers = ids.map { random.rand(888_555_0000..888_555_9999).to_s }
    rows = ids.zip(numbers).map do |id, number|
      {"request_id" => id, "promo_number_formatted" => "#{number[0, 3]}-#{number[3, 3]}-#{number[6, 4]}",
        "promo_number" => number, "tracking_url" => ""}.compact
    end
    JSON.generate("responses" => rows)
  end

  # Leaves half of the answers unchanged, and removes, adds or replaces bytes in the others.
  def change(body, random)
    return body if random.rand(2).zero?

    at = random.rand(body.bytesize)
    length = random.rand(3)
    piece = random.rand(2).zero? ? '"{},:[]a8-\\é'[random.rand(12)] : body.byteslice(random.rand(body.bytesize), 1)
    (body.byteslice(0, at) + piece + body.byteslice(at + length..).to_s).force_encoding("UTF-8")
  end
end
