# frozen_string_literal: true

# Runs the examples of README.md, in order, in one binding. A line with `# => value` must return
# that value.
#
# As a program, `ruby readme.rb README URL` runs the examples with the installed gem.
class Readme
  # The result of an example differs from the documented result.
  class Wrong < StandardError; end

  # @return [Array<String>] the examples
  attr_reader :blocks

  # @param file [String]
  # @param url [String] of a `ringwell demo`
  def initialize(file, url)
    @file = file
    @blocks = File.read(file).scan(/^```ruby\n(.*?)^```/m).flatten
      .map { |block| block.sub("http://127.0.0.1:8080", url) }
    @place = TOPLEVEL_BINDING.dup
  end

  # @return [Integer] the number of compared values
  # @raise [Wrong]
  def run
    checked = blocks.sum { |block| block.start_with?("begin") ? whole(block) : lines(block) }
    @place.local_variable_get(:client).close
    checked
  end

  private

  # Runs the code up to each line with a value, and compares.
  def lines(block)
    code = +""
    count = block.lines.count do |line|
      code << line
      wanted = line[/# => (.*)$/, 1] or next
      compare(wanted, code)
      code = +""
    end
    @place.eval(code, @file)
    count
  end

  # Runs a multi-line statement, which must return the value on the marked line.
  def whole(block)
    compare(block[/# => (.*)$/, 1], block)
    1
  end

  def compare(wanted, code)
    got = @place.eval(code, @file).inspect
    wanted == got or raise Wrong, "#{code}is #{got}"
  end
end

if $PROGRAM_NAME == __FILE__
  checked = Readme.new(*ARGV).run
  puts "#{checked} values", Ringwell::Engine::Library.path, Ringwell::Engine::Library.driver,
    $LOADED_FEATURES.grep(/ringwell\.rb\z/)
end
