# frozen_string_literal: true

require_relative "support/readme"

# Runs the examples of README.md with a `ringwell demo`.
class ReadmeTest < RingwellTest
  README = File.expand_path("../README.md", __dir__)

  it "every example has the documented results" do
    readme = Readme.new(README, stopped_later(Demo.new).url)
    assert_operator readme.blocks.size, :>=, 7
    checked = readme.run
    assert_equal readme.blocks.join.scan("# =>").size, checked
    assert_operator checked, :>=, 13
  ensure
    Ringwell.client = nil
  end

  it "the settings for Rails can be read" do
    require "yaml"
    block = File.read(README)[/^```yaml\n(.*?)^```/m, 1]
    config = Ringwell::Config.read(YAML.safe_load(block).fetch("production"))
    assert_equal "8885550199", config.pools[0].overflow
  end
end
