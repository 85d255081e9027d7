# frozen_string_literal: true

require_relative "base"
require_relative "pool"

module Ringwell
  # A client's settings, as written in a file.
  #
  #     endpoints: ["unix:/run/ringwell.sock"]
  #     deadline: 0.15
  #     pools:
  #       "42": { key: "s3cr3t", overflow: "8005550100" }
  class Config < Value
    value_fields :endpoints, :deadline, :connections, :idle, :pools, :fake, :management, :snippet,
      secret: [:management]

    # @param endpoints [String, Array<String>] as in {Client#initialize}, like the next four
    # @param pools [Enumerable<Pool>]
    # @param fake [Boolean] whether {#client} is a {Fake} that accepts all pools
    # @param management [Hash, nil] `url` and `token`, for {Calls}
    # @param snippet [Hash, nil] `url`, `site`, and optionally `integrity` and `file`, for the Rails
    #   tag helper
    def initialize(endpoints: nil, deadline: 0.15, connections: 16, idle: 30, pools: [], fake: false,
      management: nil, snippet: nil)
      fake || endpoints or raise ArgumentError, "missing keyword: :endpoints"
      @endpoints = Value.copy(Array(endpoints))
      @deadline = deadline
      @connections = connections
      @idle = idle
      @pools = pools.dup.freeze
      @fake = fake
      @management = Config.section(:management, management, %i[url token], [])
      @snippet = Config.section(:snippet, snippet, %i[url site], %i[integrity file])
      freeze
    end

    # Reads a hash with names as strings or symbols, e.g. from YAML.
    #
    # @param settings [Hash]
    # @return [Config]
    # @raise [ConfigError] names the setting that is unknown, missing or malformed
    def self.read(settings)
      settings = settings.to_h.transform_keys(&:to_sym)
      pools = (settings.delete(:pools) || {}).map { |id, pool| read_pool(id, pool) }
      new(**settings, pools: pools)
    rescue ArgumentError, NoMethodError => error
      raise ConfigError, "settings of Ringwell: #{error.message}"
    end

    # A part of the settings, with names as symbols.
    #
    # @raise [ArgumentError] names the missing or unknown setting
    def self.section(name, settings, required, optional)
      return unless settings

      section = settings.to_h.transform_keys(&:to_sym)
      missing = required - section.compact.keys
      unknown = section.keys - required - optional
      missing.empty? && unknown.empty? or
        raise ArgumentError, "#{name} needs #{required.join(" and ")}, and may have " \
                             "#{optional.empty? ? "nothing else" : optional.join(" and ")}"
      section.transform_values { |value| Value.copy(value.to_s) }.freeze
    end

    def self.read_pool(id, settings)
      Pool.new(id: id.to_s, **settings.to_h.transform_keys(&:to_sym))
    rescue ArgumentError => error
      raise ConfigError, "settings for pool #{id}: #{error.message}"
    end
    private_class_method :read_pool

    # The server's {Calls}, if `management` has its address.
    #
    # @return [Calls, nil]
    def calls
      return unless management

      require_relative "calls"
      Calls.new(management[:url], token: management[:token])
    end

    # A client with these settings.
    #
    # @return [Client, Fake]
    def client(**options)
      if fake
        require_relative "fake"
        return Fake.new(any_pool: true, instrumenter: :active_support, deadline:, pools:, **options)
      end
      Client.new(endpoints, deadline:, connections:, idle:, pools:, **options)
    end
  end
end
