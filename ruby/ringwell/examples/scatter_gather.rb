# frozen_string_literal: true

# Sends one batch to several servers that share nothing. Each gets the rows of its own pools, all at
# the same time, and the outcomes are returned in the order of the rows. If a server is slow or
# down, its own rows have no attribution, and other rows are not affected.
#
# (The nodes of one cluster do this themselves: each node accepts any batch.)
require_relative "support/evented"
require "ringwell"
require "ringwell/fake"

# Sends each owner its rows.
#
# @param rows [Array<Ringwell::Request>]
# @yieldparam row [Ringwell::Request]
# @yieldreturn [Ringwell::Allocator] the owner of a row's pool
# @return [Ringwell::Batch] in the order of `rows`
def scatter_gather(rows, &owner)
  parts = rows.each_with_index.group_by { |row, _| owner.call(row) }
  tasks = parts.map { |source, part| [Task.new { source.bulk(part.map(&:first)) }, part] }
  outcomes = Array.new(rows.size)
  tasks.each do |task, part|
    task.value.each_with_index { |outcome, place| outcomes[part[place].last] = outcome }
  end
  Ringwell::Batch.new(outcomes)
end

if $PROGRAM_NAME == __FILE__
  # Three servers with one pool each. The second is too slow, and the third is down.
  sources = (1..3).to_h do |id|
    fake = Ringwell::Fake.new(overflow: {id => "888555#{id}099"})
    [id.to_s, fake.pool(id, key: "k", numbers: ["888555#{id}001", "888555#{id}002"])]
  end
  sources["2"].late!(1)
  sources["3"].refuse!
  rows = [2, 1, 3, 1].map { |pool| Ringwell::Request.new(pool: pool, key: "k") }

  batch = Evented.run { scatter_gather(rows) { |row| sources.fetch(row.pool) } }
  batch.each { |row| puts "pool #{row.pool}: #{row.formatted} #{row.reason}" }
end
