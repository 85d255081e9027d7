# frozen_string_literal: true

# Measures the cost of 40 rows in Ruby alone: builds, writes and reads them without a server. Prints
# the process's CPU time (the median of the rounds) and the number of objects.
#
#   ruby -Ilib bench/rows.rb [ROUNDS]
require "ringwell"

ROWS = 40
ROUNDS = Integer(ARGV[0] || 2000)

# A source of numbers that returns the same bytes each time.
class Canned
  include Ringwell::Allocator

  def initialize(answer)
    @answer = answer
    @deadline = 1
    know([], {}, nil)
  end

  private

  def exchange(*) = @answer
end

rows = Array.new(ROWS) do |row|
  {"request_id" => "193C5F#{row}", "promo_number_formatted" => format("888-555-%04d", row),
   "promo_number" => format("888555%04d", row), "tracking_url" => ""}
end
source = Canned.new(JSON.generate("responses" => rows))
ids = rows.map { |row| row["request_id"] }
work = lambda do
  batch = source.bulk do |b|
    ids.each { |id| b.allocate("42", key: "S3CR3TKEY0000001", params: {m1: "autos", m2: "ford f150"}, request_id: id) }
  end
  batch.each(&:number)
end

def cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)

times = Array.new(ROUNDS) do
  started = cpu
  work.call
  cpu - started
end
GC.disable
objects = Array.new(5) {
  before = GC.stat(:total_allocated_objects)
  work.call
  GC.stat(:total_allocated_objects) - before
}.min
puts format("%d rows: %.0f us of CPU, %d objects", ROWS, times.sort[times.size / 2] * 1e6, objects)
