# frozen_string_literal: true

require "open3"

# The gem as a package: built, installed into an empty folder, and used there.
class PackageTest < RingwellTest
  ROOT = File.expand_path("..", __dir__)

  it "an installed gem contains its engine, and the README's examples work with it" do
    skip "cargo is not installed" unless system("cargo --version", %i[out err] => File::NULL)
    Dir.mktmpdir("ringwell-home") do |home|
      gem = run_program({"RINGWELL_EMBED" => stripped(home)}, "rake", "--quiet", "gem:native").lines.last.chomp
      run_program({"GEM_HOME" => home}, "gem", "install", "--local", "--no-document", gem)
      said = run_program({"GEM_HOME" => home, "RINGWELL_EMBED" => nil}, RbConfig.ruby,
        "-W:no-experimental", "test/support/readme.rb", "README.md",
        stopped_later(Demo.new).url).lines(chomp: true)
      assert_match(/\A\d+ values\z/, said[0])
      assert_equal %w[lib/ringwell/engine/libringwell_embed.so shim lib/ringwell.rb],
        said.drop(1).map { |path| path.sub(%r{\A#{home}/gems/[^/]+/}, "") }
      installed = Dir.glob("#{home}/gems/*/*").map { |file| File.basename(file) }
      assert_empty %w[LICENSE CHANGELOG.md README.md LICENSES-ENGINE.txt] - installed
      licences = File.read(Dir["#{home}/gems/*/LICENSES-ENGINE.txt"].first)
      assert_match(/^tokio \d\S+: MIT$.*^=+\n.*tokio.*Permission is hereby granted/m, licences)
    end
  end

  it "the gem with the engine's source contains the files that cargo needs, and no tests" do
    skip "cargo is not installed" unless system("cargo --version", %i[out err] => File::NULL)
    gem = run_program({}, "rake", "--quiet", "gem:source").lines.last.chomp
    Dir.mktmpdir("ringwell-source") do |folder|
      run_program({}, "gem", "unpack", gem, "--target", folder)
      engine = Dir["#{folder}/ringwell-*/ext/engine"].first
      run_program({}, "cargo", "tree", "--quiet", "-p", "ringwell-embed", folder: engine)
      assert_empty Dir["#{engine}/**/tests{,.rs}"]
    end
  end

  it "the licence is the project's" do
    assert_equal File.read("#{ROOT}/../../LICENSE"), File.read("#{ROOT}/LICENSE")
  end

  private

  # Returns the engine's library as in the packages. Its symbols would take seconds to compress.
  def stripped(folder)
    library = "#{folder}/libringwell_embed.so"
    run_program({}, "strip", "-o", library, Ringwell::Engine::Library.path)
    library
  end

  def run_program(environment, *command, folder: ROOT)
    said, status = Open3.capture2e(environment, *command, chdir: folder)
    assert_predicate status, :success?, said
    said
  end
end
