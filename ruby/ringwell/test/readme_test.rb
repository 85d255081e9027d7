# frozen_string_literal: true

# The examples of README.md, in their order, in one binding. Lines with `# => value` must have it.
class ReadmeTest < RingwellTest
  README = File.expand_path("../README.md", __dir__)
  it "every example does what it says" do
    running = stopped_later(Demo.new)
    blocks = File.read(README).scan(/^```ruby\n(.*?)^```/m).flatten
    assert_operator blocks.size, :>=, 7
    place = TOPLEVEL_BINDING.dup
    checked = blocks.sum { |block| check(block.sub("http://127.0.0.1:8080", running.url), place) }
    assert_equal blocks.join.scan("# =>").size, checked
    assert_operator checked, :>=, 13
    place.local_variable_get(:client).close
  ensure
    Ringwell.client = nil
  end

  it "the settings for Rails can be read" do
    require "yaml"
    block = File.read(README)[/^```yaml\n(.*?)^```/m, 1]
    config = Ringwell::Config.read(YAML.safe_load(block).fetch("production"))
    assert_equal "8885550199", config.pools[0].overflow
  end

  private

  # Runs a block up to each line with a value, and compares.
  def check(block, place)
    return check_whole(block, place) if block.start_with?("begin")

    code = +""
    block.lines.count do |line|
      code << line
      wanted = line[/# => (.*)$/, 1] or next
      assert_equal wanted, place.eval(code, README).inspect, code
      code = +""
    end.tap { place.eval(code, README) }
  end

  # A statement over several lines has the value of the line that is marked.
  def check_whole(block, place)
    assert_equal block[/# => (.*)$/, 1], place.eval(block, README).inspect
    1
  end
end
