# frozen_string_literal: true

require "open3"

# The choice of the engine's library and driver, and the libraries that are refused.
class LibraryTest < RingwellTest
  Library = Ringwell::Engine::Library
  GEM = File.expand_path("..", __dir__)

  def setup
    super
    @files = Dir.mktmpdir("ringwell")
  end

  def teardown
    super
    FileUtils.rm_rf(@files)
  end

  it "the shim is used if it was compiled for this Ruby, and Fiddle otherwise" do
    assert_equal :fiddle, Library.driver("0.0.0")
    pool = {id: 1, key: KEY, numbers: ["8885550101"], overflow: "8885550199"}
    [Library.driver, :fiddle].each do |driver|
      assert_equal driver, opened(durability: :memory, ring_pools: [pool], driver:).driver
    end
    error = assert_raises(Ringwell::ConfigError) { Library.new(driver: :other) }
    assert_equal "there is no driver :other here", error.message
    on_load_path("ringwell/engine/9.9.9/shim.rb") { assert_equal :shim, Library.driver("9.9.9") }
  end

  it "without a compiler, Fiddle calls the engine, and the installation reports it" do
    environment = {"MAKE" => "/nowhere", "RUBYARCHDIR" => "#{@files}/lib"}
    said, status = Open3.capture2e(environment, "rake", "--rakefile", "#{GEM}/ext/Rakefile")
    assert_predicate status, :success?, said
    assert_match(/no shim, the engine will be called by Fiddle: .*nowhere/, said)
    refute_path_exists "#{@files}/lib"
  end

  it "the shim is compiled against the library's header" do
    assert_equal File.read("#{Server::ROOT}/crates/ringwell-embed/include/ringwell_embed.h"),
      File.read("#{GEM}/ext/shim/ringwell_embed.h")
  end

  it "the library is located, and one of another release is refused" do
    assert_equal __FILE__, Library.path("RINGWELL_EMBED" => __FILE__)
    missing = assert_raises(Ringwell::ConfigError) { Library.path("RINGWELL_EMBED" => "/no") }
    assert_equal "no engine at /no: RINGWELL_EMBED must be the library's path", missing.message
    Library.stub(:places, []) do
      assert_match(/this gem has no engine for .*install Rust/, assert_raises(Ringwell::ConfigError) {
                                                                  Library.path({})
                                                                }.message)
    end
    error = assert_raises(Ringwell::AbiMismatch) { Library.new.check(Library::ABI_VERSION + 1) }
    assert_match(/has version 2 of the interface, this gem needs 1/, error.message)
    [Library.driver, :fiddle].product(%w[libc.so.6 /nowhere]).each do |driver, path|
      other = assert_raises(Ringwell::AbiMismatch) { Library.new(path, driver:) }
      assert_match(/\A#{path} is not an engine: ./, other.message)
    end
  end

  it "a fault in the engine has its own error" do
    error = assert_raises(Ringwell::Panicked) { Library.refuse(Library::PANICKED, "oh") }
    assert_equal "oh", error.message
    assert_kind_of Ringwell::EngineError, error
    refute_predicate error, :retryable?
  end

  private

  # Runs the block while `require` finds an empty file with this name.
  def on_load_path(file)
    FileUtils.mkdir_p(File.dirname("#{@files}/lib/#{file}"))
    File.write("#{@files}/lib/#{file}", "")
    $LOAD_PATH.unshift("#{@files}/lib")
    yield
  ensure
    $LOAD_PATH.delete("#{@files}/lib")
  end
end
