# frozen_string_literal: true

# The value classes: Allocation, Request, RowError, Batch, Pool, Config.
class ValueTest < RingwellTest
  Allocation = Ringwell::Allocation
  Request = Ringwell::Request
  RowError = Ringwell::RowError

  VALUES = {
    allocation: -> { Allocation.new(pool: +"42", number: +"8885550142", request_id: +"a") },
    request: -> { Request.new(pool: +"42", key: +"k", params: {+"m1" => +"autos"}) },
    row_error: -> { RowError.new(error_class: +"InvalidKey", message: +"no", request_id: +"a") },
    pool: -> { Ringwell::Pool.new(id: +"42", key: +"k", overflow: +"8005550100") },
    config: -> { Ringwell::Config.new(endpoints: [+"unix:s"], pools: []) },
    batch: -> { Ringwell::Batch.new([Allocation.new(pool: "42", number: "8885550142")]) }
  }.freeze

  VALUES.each do |name, make|
    it "#{name} is deeply frozen and compares by its fields" do
      value = make.call
      assert_deeply_frozen value
      assert_equal make.call, value
      assert_equal :found, {make.call => :found}[value]
      refute_equal Object.new, value
      refute value.eql?(nil)
    end
  end

  it "a value reports a missing or unknown keyword" do
    error = assert_raises(ArgumentError) { Allocation.new(number: "8885550142") }
    assert_match(/missing keyword: :pool/, error.message)
    error = assert_raises(ArgumentError) { Request.new(pool: 1, key: "k", lifetime: 3) }
    assert_match(/unknown keyword: :lifetime/, error.message)
  end

  it "the caller's own objects stay unchanged" do
    own = {"m1" => +"autos"}
    request = Request.new(pool: id = +"42", key: key = +"k", params: own)
    [own, own["m1"], id, key].each { |object| refute object.frozen? }
    own["m1"] << "!"
    assert_equal({"m1" => "autos"}, request.params)
  end

  it "with changes some fields and validates them" do
    allocation = VALUES[:allocation].call
    assert_equal "2005550100", allocation.with(number: "2005550100").number
    assert_equal "42", allocation.with(number: "2005550100").pool
    assert_raises(ArgumentError) { allocation.with(number: "1") }
  end

  it "a value supports pattern matching" do
    shown = case VALUES[:allocation].call
    in Ringwell::Allocation(number:, reason: :allocated) then number
    end
    assert_equal "8885550142", shown
    code = case VALUES[:row_error].call
    in Ringwell::RowError(code: :invalid_key => code) then code
    end
    assert_equal :invalid_key, code
  end

  it "JSON has exactly the API's form" do
    overflow = Allocation.new(pool: "1", number: "8885550142", reason: :late, request_id: 7)
    assert_equal '{"request_id":7,"promo_number_formatted":"888-555-0142",' \
                 '"promo_number":"8885550142","tracking_url":"","overflow":true}', overflow.to_json
    refute_includes overflow.with(request_id: nil, reason: :allocated).to_json, "request_id"
    assert_equal '{"error_class":"InvalidKey","message":"no"}',
      RowError.new(error_class: "InvalidKey", message: "no").to_json
    assert_equal '{"api_suffix":"1/allocate_number.json?ring_pool_key=k&m1=a+%26+%C3%A4&e=",' \
                 '"request_id":false}',
      JSON.generate(Request.new(pool: 1, key: "k", params: {m1: "a & ä", e: nil},
        request_id: false))
    late = Ringwell::DeadlineExceeded.new("late")
    assert_equal '{"responses":[{"error_class":"ServiceUnavailable","message":"late"},' \
                 '{"request_id":"a","error_class":"InvalidKey","message":"no"}]}',
      Ringwell::Batch.new([late, VALUES[:row_error].call]).to_json
  end

  it "a request holds its own JSON, and reads its parameters from it" do
    request = Request.new(pool: 1, key: "k", params: {m1: "a&b=c d", m2: nil, "3" => 4.5},
      visitor: "v&1", request_id: 7)
    assert_equal({"m1" => "a&b=c d", "m2" => "", "3" => "4.5"}, request.params)
    assert_equal JSON.generate(request.as_json), request.to_json
    assert_equal request, request.with(request_id: 7)
    assert_equal "v&1", request.with(request_id: "ü\"").visitor
    assert_equal "ü\"", JSON.parse(request.with(request_id: "ü\"").to_json)["request_id"]
    plain = Request.new(pool: 1, key: "k")
    assert_equal [{"api_suffix" => "1/allocate_number.json?ring_pool_key=k"}, {}],
      [plain.as_json, plain.params]
  end

  it "parts that many rows share are cached, within a limit" do
    rows = Ringwell::Rows.new({"1" => "k"})
    batch = Ringwell::Batch::Builder.new(rows)
    row = ->(pool, key, name) { batch.allocate(pool, key:, params: {name => "x"}).row(batch.size - 1) }
    assert_equal row.call(1, nil, :m1), row.call("1", "k", "m1")
    assert_includes row.call(1, "other", :m1), "ring_pool_key=other&"
    assert_includes row.call(1, nil, :m1), "ring_pool_key=k&"
    (Ringwell::Rows::KEPT_MAX + 10).times { |i| row.call(i, "k", "p#{i}") }
    assert_equal [Ringwell::Rows::KEPT_MAX] * 2, [rows.heads.size, rows.names.size]
  end

  it "a refused row leaves nothing in its batch" do
    batch = Ringwell::Batch::Builder.new(Ringwell::Rows.new)
    batch.allocate(1, key: "k", request_id: "a")
    before = batch.body
    [{params: {a: 1, b: []}}, {request_id: {}}, {overflow: "12"}, {visitor: 3}, {key: nil}].each do |wrong|
      assert_raises(ArgumentError) { batch.allocate(2, key: "k", overflow: "8885550199", **wrong) }
      assert_equal [1, before, {}], [batch.size, batch.body, batch.overflow]
    end
    assert_equal '{"requests":[{"api_suffix":"1/allocate_number.json?ring_pool_key=k","request_id":"a"},' \
                 '{"api_suffix":"3/allocate_number.json?ring_pool_key=k"}]}', batch.allocate(3, key: "k").body
  end

  it "a batch is split into parts, and each has the ids, pools and overflow numbers of its rows" do
    batch = Ringwell::Batch::Builder.new(Ringwell::Rows.new)
    1001.times do |i|
      batch.allocate(i % 7, key: "k", request_id: i, overflow: (format("888555%04d", i) if (i % 3).zero?),
        params: {m1: "x" * (i < 500 ? 900 : 1)})
    end
    parts = batch.parts
    assert_equal [250, 250, 500, 1], parts.map { |part, _| part.size }
    assert_equal (0..1000).to_a, parts.flat_map { |part, _| part.ids }
    assert_equal batch.pools, parts.flat_map { |part, _| part.pools }
    parts.each do |part, body|
      assert_operator body.bytesize, :<=, Request::BODY_BYTES_MAX
      assert_equal part.ids, JSON.parse(body)["requests"].map { |row| row["request_id"] }
      part.ids.each_with_index do |id, row|
        assert_equal [(format("888555%04d", id) if (id % 3).zero?)], [part.overflow[row]]
      end
    end
  end

  it "bytes that are not UTF-8 are escaped as they are" do
    request = Request.new(pool: 1, key: "k", params: {m1: "\xFFa"})
    assert_includes request.to_json, "m1=%FFa"
  end

  it "keys are never printed" do
    refute_includes VALUES[:request].call.inspect, '"k"'
    assert_includes VALUES[:request].call.inspect, 'pool="42"'
    pool = Ringwell::Pool.new(id: 1, key: "secret")
    refute_includes pool.inspect, "secret"
    refute_includes Ringwell::Client.new("unix:s", pools: [pool]).inspect, "secret"
  end

  {
    {pool: "", key: "k"} => /pool must be an id/,
    {pool: "a/b", key: "k"} => /pool must be an id/,
    {pool: 1, key: nil} => /key of pool 1 is missing/,
    {pool: 1, key: ""} => /key of pool 1 is missing/,
    {pool: 1, key: "k", params: {a: [1]}} => /parameter a must be a scalar, got Array/,
    {pool: 1, key: "k", request_id: {}} => /request_id must be a JSON scalar/,
    {pool: 1, key: "k", request_id: Float::NAN} => /request_id must be a JSON scalar/,
    {pool: 1, key: "k", request_id: "\xFF"} => /request_id must be a JSON scalar/,
    {pool: 1, key: "k", visitor: 3} => /visitor must be text/,
    {pool: 1, key: "k", overflow: "12"} => /overflow must be ten digits, or \+ and a country code/
  }.each do |fields, message|
    it "a request is refused: #{fields}" do
      assert_match message, assert_raises(ArgumentError) { Request.new(**fields) }.message
    end
  end

  it "an allocation has ten digits and a known reason" do
    assert_raises(ArgumentError) { Allocation.new(pool: "1", number: "0885550142") }
    assert_raises(ArgumentError) { Allocation.new(pool: "1", number: "8885550142", reason: :bored) }
    assert_equal "888-555-0142", "#{VALUES[:allocation].call}"
  end

  it "a row with a foreign number includes its national form" do
    requests = [Ringwell::Request.new(pool: 1, key: "k")]
    row = {promo_number: "+493012345678", promo_number_formatted: "030 12345678", request_id: requests[0].request_id}
    asked = Ringwell::Batch::Builder.of(requests)
    read = Ringwell::Batch.read(JSON.generate(responses: [row.compact]), asked) { |_, other| other }
    assert_equal ["+493012345678", "030 12345678"], [read[0].number, read[0].formatted]
  end

  it "a foreign number is E.164, and is printed in its national form" do
    german = Allocation.new(pool: "1", number: "+493012345678", national: "030 12345678")
    assert_equal ["030 12345678", "030 12345678"], [german.formatted, german.as_json["promo_number_formatted"]]
    assert_equal "+493012345678", german.with(national: nil).formatted
    %w[493012345678 +18885550142 +4930 +0493012345678 +4930123456789012].each do |number|
      assert_raises(ArgumentError, number) { Allocation.new(pool: "1", number: number) }
    end
  end

  it "a batch is a frozen list with views" do
    number = VALUES[:allocation].call
    batch = Ringwell::Batch.new([number, row = VALUES[:row_error].call, number.with(reason: :late)])
    assert_equal [number, number.with(reason: :late)], batch.allocations
    assert_equal [row], batch.errors
    assert_equal [:late], batch.overflowed.map(&:reason)
    assert_equal [row, 3, number], [batch[1], batch.size, batch.each.next]
    assert_same batch, batch.each { |outcome| outcome }
  end

  it "a row error explains its meaning for the caller" do
    exhausted = RowError.new(error_class: "PoolExhausted", message: "none")
    assert exhausted.retryable?
    refute VALUES[:row_error].call.retryable?
    assert_equal :other, RowError.new(error_class: "Brand New", message: "?").code
    failed = RowError.new(error_class: "InternalServiceError", message: "refer to error handle 12")
    assert_equal 12, failed.handle
  end

  it "a server error explains its cause" do
    body = '{"errors":{"invalid_data":"refer to error handle 77","class":"InternalServiceError"}}'
    error = Ringwell::ServerError.new(status: 500, body: body)
    assert_equal [77, "InternalServiceError", body, true],
      [error.handle, error.error_class, error.body, error.retryable?]
    ["<html>", "[]", "{}", '{"errors":[]}', "3", '{"errors":3}', "\xFF"].each do |other|
      error = Ringwell::ServerError.new(status: 403, body: other)
      assert_nil error.error_class
      refute error.retryable?
      assert error.message.valid_encoding?
    end
  end

  it "every error descends from one class and answers retryable" do
    refute Ringwell::ConfigError.new.retryable?
    assert Ringwell::ConnectError.new.retryable?
    assert Ringwell::DeadlineExceeded.new.retryable?
    refute Ringwell::ProtocolError.new.retryable?
    Ringwell.constants.map { |name| Ringwell.const_get(name) }
      .select { |one| one.is_a?(Class) && one <= Exception }
      .each { |one| assert_operator one, :<=, Ringwell::Error }
  end

  private

  def assert_deeply_frozen(object)
    assert object.frozen?, "#{object.inspect} is not frozen"
    object.instance_variables.each { |name|
      assert_deeply_frozen object.instance_variable_get(name)
    }
    object.each { |element| assert_deeply_frozen element } if object.is_a?(Array)
    object.each { |pair| pair.each { |one| assert_deeply_frozen one } } if object.is_a?(Hash)
  end
end
