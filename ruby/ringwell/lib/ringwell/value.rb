# frozen_string_literal: true

module Ringwell
  # Base of the values: frozen to the bottom, compared by their fields, made by keywords only.
  #
  # Ruby itself names a keyword that is missing or unknown, because each value writes out its
  # `initialize`. `Data` would do most of this, but came with Ruby 3.2.
  class Value
    class << self
      # @return [Array<Symbol>] in the order of {#to_h}
      attr_reader :fields

      # Copies, frozen to the bottom, so that the caller's own objects stay as they are.
      def copy(object)
        case object
        when String then object.frozen? ? object : object.dup.freeze
        when Array then object.map { |element| copy(element) }.freeze
        else object
        end
      end

      private

      # Declares the fields. Those in `secret` are hidden by {#inspect}, those in `computed` have
      # methods of their own.
      def value_fields(*names, secret: [], computed: [])
        @fields = names.freeze
        @secret = secret
        attr_reader(*(names - computed))
      end
    end

    # A copy with other values in some fields, checked like a new one.
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
