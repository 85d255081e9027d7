# frozen_string_literal: true

module Ringwell
  # Base class of the values: deeply frozen, compared by their fields, created by keywords only.
  #
  # Ruby itself reports a missing or unknown keyword, because each value writes out its
  # `initialize`. `Data` would do most of this, but came with Ruby 3.2.
  class Value
    class << self
      # @return [Array<Symbol>] in the order of {#to_h}
      attr_reader :fields

      # Deep copies, frozen, so that the caller's own objects stay unchanged.
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

    # A copy with other values in some fields, checked like a new object.
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
