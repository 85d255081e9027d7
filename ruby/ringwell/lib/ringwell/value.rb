# frozen_string_literal: true

module Ringwell
  # The base class of values, which are deeply frozen, compared by their fields, and created only
  # with keywords.
  #
  # Each value defines its own `initialize`, so Ruby itself reports a missing or unknown keyword.
  # `Data` would do most of this, but exists only since Ruby 3.2.
  class Value
    class << self
      # @return [Array<Symbol>] in the order of {#to_h}
      attr_reader :fields

      # Returns a deep, frozen copy, so that the caller's own objects stay unchanged.
      def copy(object)
        case object
        when String then object.frozen? ? object : object.dup.freeze
        when Array then object.map { |element| copy(element) }.freeze
        else object
        end
      end

      private

      # Declares the fields. {#inspect} hides those in `secret`; those in `computed` have their own
      # methods.
      def value_fields(*names, secret: [], computed: [])
        @fields = names.freeze
        @secret = secret
        attr_reader(*(names - computed))
      end
    end

    # Returns a copy with other values in some fields. It is checked like a new object.
    def with(**changes) = self.class.new(**to_h, **changes)

    def to_h = self.class.fields.to_h { |name| [name, public_send(name)] }

    def deconstruct_keys(_keys) = to_h

    def ==(other) = other.class == self.class && other.to_h == to_h
    alias eql? ==

    def hash = [self.class, to_h].hash

    def inspect
      secret = self.class.instance_variable_get(:@secret)
      shown = to_h.map { |name, value| "#{name}=#{secret.include?(name) ? "…" : value.inspect}" }
      "#<#{self.class.name} #{shown.join(" ")}>"
    end
  end
end
