# frozen_string_literal: true

# The gem as a package, and forbidden constructs in its code.
class GemTest < RingwellTest
  ROOT = File.expand_path("..", __dir__)
  # Constructs that lib/ must not contain, each with the reason.
  FORBIDDEN = {
    /Timeout\b/ => "interrupts code anywhere: use deadlines for waits",
    /Thread\.current|Fiber\[|fiber_local/ => "is lost in another fiber: pass state as arguments",
    /Fiber\.(yield|new)|\.resume\b/ => "only the scheduler resumes fibers",
    /IO\.select/ => "blocks the scheduler before Ruby 3.2",
    /TCPSocket|UNIXSocket|Socket\.tcp/ => "blocks the scheduler while connecting, since Ruby 3.4",
    /\bautoload\b/ => "hides from readers of the file what it loads",
    /\bat_exit\b|\btrap\b|\$[a-z]/ => "changes the host process",
    /@@/ => "state of the class is shared by all clients"
  }.freeze

  it "it needs nothing at run time, compiles one optional part, and contains its files" do
    spec = Dir.chdir(ROOT) { Gem::Specification.load("ringwell.gemspec") }
    assert_equal [[], ["ext/Rakefile"]], [spec.dependencies, spec.extensions]
    assert_empty spec.files.grep(/shim\.(so|bundle)\z/)
    assert spec.required_ruby_version.satisfied_by?(Gem::Version.new("3.1.0"))
    refute spec.required_ruby_version.satisfied_by?(Gem::Version.new("3.0.9"))
    %w[lib/ringwell.rb lib/ringwell/rails/railtie.rb sig/ringwell.rbs ext/shim/shim.c README.md].each do |file|
      assert_includes spec.files, file
    end
  end

  it "its code avoids constructs that would surprise its users" do
    Dir["#{ROOT}/lib/**/*.rb"].each do |file|
      File.readlines(file).each_with_index do |line, index|
        next if line.lstrip.start_with?("#")

        FORBIDDEN.each { |pattern, why| refute_match pattern, line, "#{file}:#{index + 1}: #{why}" }
      end
    end
  end

  # Loaded files and new threads would delay the first request.
  it "the first call of an engine loads no file, and no call creates a thread" do
    script = <<~RUBY
      require "ringwell/engine"
      pool = { id: 1, key: "k" * 8, numbers: ["8885550101-8885550189"] }
      threads = -> { Dir.children("/proc/self/task").size }
      before = threads.call
      engine = Ringwell::Engine.open(durability: :os, data: ARGV[0], ring_pools: [pool])
      files = $LOADED_FEATURES.size
      2.times { engine.allocate(1, key: "k" * 8) }
      engine.snapshot
      puts [$LOADED_FEATURES.size - files, threads.call - before, Thread.list.size].inspect
    RUBY
    Dir.mktmpdir do |data|
      run = IO.popen([RbConfig.ruby, "-W:no-experimental", "-I", "#{ROOT}/lib", "-e", script, data],
        err: %i[child out], &:read)
      assert_equal "[0, 0, 1]\n", run
    end
  end

  it "each file can be loaded alone" do
    %w[ringwell ringwell/config ringwell/engine ringwell/fake ringwell/rack].map do |file|
      Thread.new do
        run = IO.popen([RbConfig.ruby, "-w", "-W:no-experimental", "-I", "#{ROOT}/lib", "-e",
          "require #{file.inspect}; puts :loaded"], err: %i[child out], &:read)
        assert_equal "loaded\n", run
      end
    end.each(&:join)
  end
end
