# frozen_string_literal: true

require "open3"
require_relative "../examples/support/evented"

# The examples run and print the expected results. Each is a separate program.
class ExamplesTest < RingwellTest
  FOLDER = File.expand_path("../examples", __dir__)
  LIB = File.expand_path("../lib", __dir__)
  # Quick examples run under every scheduler, the others only under the first.
  QUICK = %w[scatter_gather exceptions].freeze

  class << self
    # Starts all examples, so that they wait while other tests run.
    def start_all = @started ||= runs.to_h { |run| [run, start(*run)] }

    # Each example's output, by name and scheduler.
    def output = @output ||= start_all.transform_values(&:value)

    def runs
      names = Dir["#{FOLDER}/*.rb"].map { |file| File.basename(file, ".rb") }
      names.flat_map do |name|
        schedulers = QUICK.include?(name) ? Evented.schedulers : Evented.schedulers.first(1)
        schedulers.map { |scheduler| [name, scheduler] }
      end
    end

    def start(name, scheduler)
      Thread.new do
        Open3.capture2e({"SCHEDULER" => scheduler},
          RbConfig.ruby, "-W:no-experimental", "-I", LIB, "#{FOLDER}/#{name}.rb")
      end
    end
  end

  it "all examples run" do
    assert_operator self.class.output.size, :>=, 5
    self.class.output.each { |name, (text, status)| assert status.success?, "#{name}: #{text}" }
  end

  # An idle machine reaches 220 requests/s or more, 22 times as many: see README.md.
  it "an action that waits 100 ms blocks no other in its process" do
    assert_shown("slow_backend") do |blocking, evented, blocking_longer, evented_longer|
      # One at a time, the limit is ten per second; 32 at a time, it is 320.
      blocking <= 10.1 && evented <= 320 && evented >= 4 * blocking &&
        # At 180 ms, 100 requests take four rounds of 30.
        blocking_longer <= 5.6 && evented_longer <= 139 && evented_longer >= 4 * blocking_longer
    end
  end

  it "behind a slow proxy no request waits for another" do
    assert_shown("slow_proxy") do |blocking, *others|
      assert_equal 3, others.size
      blocking >= 20 && others.all? { |seconds| seconds >= 4 && seconds <= blocking / 3 }
    end
  end

  it "a counter owned by one fiber is read sooner, and only in whole steps" do
    assert_shown("counter", /waited +(\d+) ms/) { |locked, owned| owned < locked }
    assert_includes printed("counter"), "whole steps only: true"
  end

  it "a slow server and a dead one only affect their own rows, and the order is kept" do
    Evented.schedulers.each do |scheduler|
      assert_equal <<~TEXT, printed("scatter_gather", scheduler)
        pool 2: 888-555-2099 late
        pool 1: 888-555-1001 allocated
        pool 3: 888-555-3099 unreachable
        pool 1: 888-555-1002 allocated
      TEXT
    end
  end

  it "values and exceptions leave a fiber unchanged, and none ends the process" do
    Evented.schedulers.each do |scheduler|
      lines = printed("exceptions", scheduler).lines(chomp: true)
      assert_equal 14, lines.grep(/\Asame: /).size, lines.join("\n")
      assert_equal "still alive", lines.last
    end
  end

  it "scatter-gather over real servers: a hanging server only affects its own rows" do
    require "#{FOLDER}/scatter_gather"
    servers = (1..3).map do |id|
      server(Server.pool(id, key: KEY, numbers: ["888555#{id}001-888555#{id}098"]))
    end
    sources = servers.each_with_index.to_h do |one, index|
      [(index + 1).to_s,
        client(one.url, deadline: 0.15, overflow: {index + 1 => "888555#{index + 1}099"})]
    end
    rows = Array.new(30) do |index|
      Ringwell::Request.new(pool: 1 + (index % 3), key: KEY, request_id: index)
    end
    servers[1].halt
    Evented.schedulers.each do |scheduler|
      batch = nil
      assert_takes(0.15..0.2) do
        batch = Evented.run(scheduler) { scatter_gather(rows) { |row| sources.fetch(row.pool) } }
      end
      assert_equal (0...30).to_a, batch.map(&:request_id)
      assert_equal({"1" => [:allocated], "2" => [:late], "3" => [:allocated]},
        batch.group_by(&:pool).transform_values { |part| part.map(&:reason).uniq })
    end
  end

  private

  def printed(name, scheduler = Evented.schedulers.first)
    self.class.output.fetch([name, scheduler])[0]
  end

  # One good result in six attempts is enough, because the machine also does other work.
  def assert_shown(name, pattern = /^[^(\n]*: +(\d+\.\d+)/)
    5.times do
      return pass if yield(*printed(name).scan(pattern).flatten.map(&:to_f))

      run = [name, Evented.schedulers.first]
      self.class.output[run] = self.class.start(*run).value
    end
    assert yield(*printed(name).scan(pattern).flatten.map(&:to_f)), printed(name)
  end
end
