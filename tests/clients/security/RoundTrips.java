import java.io.ByteArrayOutputStream;
import java.io.FileInputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.TopicCommand;

/**
 * Sends one record to a topic, reads it back in a group of the topic's name, and asks kafka-topics
 * for the topics; then the next. Arguments: a topic and a file of properties for each. Says a line
 * for each: the record's value, a tab, and the topics; or an error.
 */
public final class RoundTrips {
    private static final Duration WITHIN = Duration.ofSeconds(60);

    public static void main(String[] words) throws Exception {
        Exit.setExitProcedure((status, message) -> { });
        for (int i = 0; i < words.length; i += 2) {
            String said;
            try {
                said = roundTrip(words[i], words[i + 1]) + "\t" + topics(words[i + 1]);
            } catch (Exception problem) {
                said = problem.toString();
            }
            System.out.println(said);
        }
    }

    private static String roundTrip(String topic, String path) throws Exception {
        Properties settings = new Properties();
        try (InputStream file = new FileInputStream(path)) {
            settings.load(file);
        }
        StringSerializer text = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, text, text)) {
            producer.send(new ProducerRecord<>(topic, "of " + topic)).get();
        }
        settings.put("group.id", topic);
        settings.put("auto.offset.reset", "earliest");
        StringDeserializer read = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, read, read)) {
            consumer.subscribe(List.of(topic));
            long end = System.nanoTime() + WITHIN.toNanos();
            while (System.nanoTime() < end) {
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(200))) {
                    consumer.commitSync();
                    return each.value();
                }
            }
        }
        throw new IllegalStateException("no record within " + WITHIN);
    }

    private static String topics(String path) throws Exception {
        Properties settings = new Properties();
        try (InputStream file = new FileInputStream(path)) {
            settings.load(file);
        }
        String address = settings.getProperty("bootstrap.servers");
        PrintStream out = System.out;
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        System.setOut(new PrintStream(said, true));
        try {
            TopicCommand.main(
                "--list", "--bootstrap-server", address, "--command-config", path);
        } finally {
            System.setOut(out);
        }
        return said.toString().strip().replace('\n', ' ');
    }
}
