# frozen_string_literal: true

require "contract"

# Tests the contract with the fake.
class FakeContractTest < RingwellTest
  include Contract

  def source(pools, **options)
    fake = Ringwell::Fake.new(**options)
    pools.each { |id, pool| fake.pool(id, **pool) }
    fake
  end

  def time_passes(seconds) = contract.advance(seconds)
end

# Tests the contract with the client and a real server.
class ServerContractTest < RingwellTest
  include Contract

  def source(pools, **options)
    running = server(pools.map { |id, pool| Server.pool(id, **pool) }.join)
    client([running.url, running.socket], deadline: 10, **options)
  end

  def time_passes(seconds) = sleep(seconds)
end

# Tests the contract with the engine in this process, called through the shim if it was compiled.
class EngineContractTest < RingwellTest
  include Contract

  def source(pools, **options)
    ring_pools = pools.map { |id, pool| {id:, **pool} }
    opened(durability: :memory, deadline: 10, ring_pools:, **options)
  end

  def time_passes(seconds) = sleep(seconds)
end

# Tests the contract with the engine in this process, called through Fiddle.
class FiddleContractTest < EngineContractTest
  include WithFiddle
end
