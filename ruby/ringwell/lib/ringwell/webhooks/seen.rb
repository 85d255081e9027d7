# frozen_string_literal: true

module Ringwell
  class Webhooks
    # The ids of events that this process has handled. The oldest ids are removed.
    class Seen
      # @param most [Integer] the maximum number of stored ids
      def initialize(most: 10_000)
        @most = most
        @ids = {}
        @mutex = Mutex.new
      end

      # Stores the id if it is new.
      #
      # @return [Boolean] whether the id is new
      def add?(id)
        @mutex.synchronize do
          return false if @ids.key?(id)

          @ids.shift if @ids.size >= @most
          @ids[id] = true
        end
      end

      # Removes an id whose event was not handled after all.
      def delete(id) = @mutex.synchronize { @ids.delete(id) }
    end

    # The ids of handled events in a cache that processes share, such as Rails.cache.
    class CacheSeen
      # Longer than a server retries: ten attempts take three days.
      KEPT = 7 * 86_400

      # @param cache [#write, #delete] with `unless_exist`, as in ActiveSupport
      def initialize(cache, prefix: "ringwell-webhook-")
        @cache = cache
        @prefix = prefix
      end

      # See {Seen#add?}.
      def add?(id) = @cache.write("#{@prefix}#{id}", true, unless_exist: true, expires_in: KEPT)

      def delete(id) = @cache.delete("#{@prefix}#{id}")
    end
  end
end
