# frozen_string_literal: true

# A tiny run of each benchmark, to detect a broken one.
class BenchTest < RingwellTest
  it "the client's cost beside Net::HTTP is measured" do
    running = server(Server.pool(1, key: KEY, numbers: ["8885550101-8885550199"],
      overflow: "8885550100"))
    bench = File.expand_path("../bench/client.rb", __dir__)
    lib = File.expand_path("../lib", __dir__)
    lines = IO.popen([RbConfig.ruby, "-I", lib, bench, running.url, "1", KEY, "3"], &:readlines)
    assert_operator lines.size, :>=, 4
    lines.each { |line| assert_match(/rows: \S+ +\d+ us, +\d+ us of CPU, +\d+ objects, .* \d+\.\d\d$/, line) }
  end

  it "the cost of rows without a server is measured" do
    bench = File.expand_path("../bench/rows.rb", __dir__)
    lib = File.expand_path("../lib", __dir__)
    said = IO.popen([RbConfig.ruby, "-I", lib, bench, "20"], &:read)
    assert_match(/\A40 rows: \d+ us of CPU, \d+ objects\n\z/, said)
    # The first version created 944 objects.
    assert_operator said[/(\d+) objects/, 1].to_i, :<=, 305
  end

  it "the engine is measured in each server, beside pure Ruby and our server" do
    skip "wrk is not installed" unless system("which wrk", out: File::NULL)
    bench = File.expand_path("../bench/engine.rb", __dir__)
    lib = File.expand_path("../lib", __dir__)
    # All run at the same time, because only the answers matter here.
    options = ["-W:no-experimental", "-I", lib]
    command = [{"AT_ONCE" => "yes"}, RbConfig.ruby, *options, bench, "0.15", "1"]
    lines = []
    # A busy machine may be too slow for the measurement.
    3.times { lines.empty? && lines = IO.popen(command, &:readlines) }
    servers = system("which falcon", out: File::NULL) ? 7 : 6
    assert_equal servers + 4, lines.size
    lines.shift(servers).each do |line|
      assert_match(%r{ \d+ requests/s, .* \d+\.\d\d times pure Ruby}, line)
    end
    lines.each do |line|
      assert_match(/a call of \d+ rows.*: fiddle with GVL .* fiddle without GVL \d/, line)
    end
  end
end
