# frozen_string_literal: true

require "open3"

# Other ways to run Ruby: Ractors that share values, a garbage collector that moves objects, and
# compilation at run time.
class RuntimeTest < RingwellTest
  LIB = File.expand_path("../lib", __dir__)
  # Builds, sends and reads rows.
  PROGRAM = <<~RUBY
    require "ringwell/engine"
    pool = { id: 1, key: "k" * 8, numbers: ["8885550101-8885550189"], overflow: "8885550199" }
    engines = %i[fiddle shim].map { |driver|
      Ringwell::Engine.open(durability: :memory, ring_pools: [pool], driver: driver) rescue nil
    }.compact
    numbers = engines.map { |engine|
      80.times.map { |i|
        GC.compact if GC.respond_to?(:compact) && (i % 20).zero? && ARGV[0] == "compact"
        engine.bulk { |b| b.allocate(1, key: "k" * 8, params: { m1: "autos \#{i}" }, request_id: i.to_s) }[0].number
      }.uniq.size
    }
    p numbers.uniq
  RUBY

  {"with moving objects" => [[], "compact"], "compiled by YJIT" => [["--yjit"], ""]}.each do |name, (options, mode)|
    it "the engine and its rows work #{name}" do
      compiled = options.empty? || "RubyVM::YJIT.enabled?"
      supported = system(RbConfig.ruby, *options, "-e", "exit #{compiled}", %i[out err] => File::NULL)
      skip "this Ruby has no #{options.join}" unless supported
      said, = Open3.capture2e(RbConfig.ruby, *options, "-W0", "-I", LIB, "-e", PROGRAM, mode)
      assert_equal "[80]\n", said
    end
  end

  it "values can be passed between Ractors, and any Ractor can create requests" do
    program = <<~RUBY
      require "ringwell"
      made = Ringwell::Allocation.new(pool: "1", number: "8885550142")
      row = Ringwell::Request.new(pool: 1, key: "k", params: { m1: "a" })
      p [made, row].map { |one| Ractor.shareable?(one) }
      there = Ractor.new(made, row) { |one, other|
        [one.formatted, other.to_json, Ringwell::Request.new(pool: 2, key: "k", params: { m2: "b" }).params]
      }
      p there.respond_to?(:value) ? there.value : there.take
    RUBY
    said, = Open3.capture2e(RbConfig.ruby, "-W0", "-I", LIB, "-e", program)
    assert_equal <<~TEXT, said
      [true, true]
      ["888-555-0142", "{\\"api_suffix\\":\\"1/allocate_number.json?ring_pool_key=k&m1=a\\"}", {"m2"=>"b"}]
    TEXT
  end
end
